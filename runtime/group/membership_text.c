#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "runtime/group/membership_private.h"

// Appends to a line, which is cut at its size.
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

void cn_membership_explain(const struct cn_membership *membership, const struct cn_member *members,
                           uint32_t member, char *text, size_t size)
{
    const struct other *other = &membership->others[member];
    uint16_t own = cn_membership_release();
    const char *name = members[member].name;
    size_t used = 0;

    if (other->refused == CN_REFUSAL_TWINS)
        print(text, size, &used, "two boards call themselves %s, one is to be at %s", name,
              members[member].address);
    else if (other->refused == CN_REFUSAL_RELEASE)
        print(text, size, &used, "%s runs release %u.%u.%u, this board %u.%u.%u", name,
              other->release >> 12, other->release >> 6 & 63, other->release & 63, own >> 12,
              own >> 6 & 63, own & 63);
    else
        print(text, size, &used, "%s works on another job or run, or names other members", name);
}

void cn_membership_describe(const struct cn_membership *membership, const struct cn_member *members,
                            uint64_t now_ms, char *text, size_t size)
{
    uint32_t present =
        membership->member ? membership->commit.members : cn_membership_forming(membership, now_ms);
    uint64_t leader = membership->member ? membership->commit.epoch % CN_EPOCH_STRIDE : UINT64_MAX;
    const char *separator = " ";
    char why[CN_REFUSAL_SIZE];
    size_t used = 0;

    print(text, size, &used,
          membership->member ? "epoch %" PRIu64 ":" : "forming after epoch %" PRIu64 ":",
          membership->epoch);
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
        if (other->refused) {
            cn_membership_explain(membership, members, i, why, sizeof(why));
            print(text, size, &used, "%s%s", separator, why);
        } else if (membership->config.keyless & cn_membership_bit(i))
            print(text, size, &used, "%s%s has no key: it is not enrolled, or revoked", separator,
                  members[i].name);
        else if (now_ms < other->shunned_until_ms && membership->stalls.suspect == i)
            print(text, size, &used, "%s%s is left out for %" PRIu64 " s, as calls waited in vain",
                  separator, members[i].name, (other->shunned_until_ms - now_ms + 999) / 1000);
        else if (now_ms < other->shunned_until_ms)
            print(text, size, &used, "%s%s cannot be reached at %s", separator, members[i].name,
                  members[i].address);
        else if (!membership->member && other->seen == SEEN_BUSY)
            print(text, size, &used, "%s%s is busy", separator, members[i].name);
        else
            print(text, size, &used, "%s%s is missing since %" PRIu64 " s", separator,
                  members[i].name, (now_ms - other->present_ms) / 1000);
        separator = ", ";
    }
}
