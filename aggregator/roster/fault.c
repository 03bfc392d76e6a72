#include "aggregator/roster/fault.h"

#include <string.h>

#include "runtime/base/printable.h"
#include "runtime/base/utf8.h"

void cn_fault_clean(char to[CN_FAULT_SIZE], const char *text)
{
    const char *from = text;
    size_t used = 0, size;
    uint32_t point;

    while (*from && used + 1 < CN_FAULT_SIZE) {
        if (*from == ' ' && from[1] == ' ') { // several blanks become one
            from++;
            continue;
        }
        size = cn_utf8_read(from, &point);
        if (used + size >= CN_FAULT_SIZE)
            break;
        if (size && cn_is_printable(point)) {
            memcpy(to + used, from, size);
            used += size;
        } else {
            to[used++] = '?';
        }
        from += size ? size : 1;
    }
    to[used] = '\0';
}

bool cn_fault_note(struct cn_fault *fault, const char *text, uint64_t now_ms)
{
    char cleaned[CN_FAULT_SIZE];
    bool is_new;

    fault->in_doubt = !*text;
    if (!*text)
        return false;
    cn_fault_clean(cleaned, text);
    is_new = !fault->told_ms || strcmp(cleaned, fault->text) != 0;
    memcpy(fault->text, cleaned, sizeof(cleaned));
    fault->told_ms = now_ms ? now_ms : 1;
    return is_new;
}

bool cn_fault_end(struct cn_fault *fault)
{
    bool ends = fault->told_ms && fault->in_doubt;

    if (ends)
        fault->told_ms = 0;
    return ends;
}

bool cn_fault_begins(const struct cn_fault *fault, const char *text)
{
    return fault->told_ms && strncmp(fault->text, text, strlen(text)) == 0;
}
