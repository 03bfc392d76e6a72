#include <stdarg.h>
#include <stdio.h>

#include "runtime/group/membership_private.h"

// Appends to a line that is cut at its size.
static void print(char *text, size_t size, size_t *used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void print(char *text, size_t size, size_t *used, const char *format, ...)
{
    va_list arguments;
    int count;

    if (*used >= size)
        return;
    va_start(arguments, format);
    count = vsnprintf(text + *used, size - *used, format, arguments);
    va_end(arguments);
    if (count > 0)
        *used += (size_t)count;
}

uint32_t cn_membership_leader(const struct cn_membership *membership)
{
    return membership->member ? (uint32_t)(membership->commit.epoch % CN_EPOCH_STRIDE) : UINT32_MAX;
}

void cn_membership_describe(const struct cn_membership *membership, const struct cn_member *members,
                            uint64_t now_ms, char *text, size_t size)
{
    uint32_t present =
        membership->member ? membership->commit.members : cn_membership_forming(membership, now_ms);
    uint64_t leader = membership->member ? membership->commit.epoch % CN_EPOCH_STRIDE : UINT64_MAX;
    const char *separator = " ";
    size_t used = 0;

    print(text, size, &used, membership->member ? "epoch %llu:" : "forming after epoch %llu:",
          (unsigned long long)membership->epoch);
    for (uint32_t i = 0; i < membership->config.count; i++) {
        if (!(present & cn_membership_bit(i)))
            continue;
        print(text, size, &used, "%s%s%s", separator, members[i].name,
              i == leader ? " (leads)" : "");
        separator = ", ";
    }
    separator = "; ";
    for (uint32_t i = 0; i < membership->config.count; i++) {
        const struct other *other = &membership->others[i];

        if (present & cn_membership_bit(i))
            continue;
        if (other->refused)
            print(text, size, &used, "%s%s has another job", separator, members[i].name);
        else if (now_ms < other->shunned_until_ms)
            print(text, size, &used, "%s%s cannot be reached at %s", separator, members[i].name,
                  members[i].address);
        else if (!membership->member && other->seen == SEEN_BUSY)
            print(text, size, &used, "%s%s is busy", separator, members[i].name);
        else
            print(text, size, &used, "%s%s is missing since %llu s", separator, members[i].name,
                  (unsigned long long)((now_ms - other->present_ms) / 1000));
        separator = ", ";
    }
}
