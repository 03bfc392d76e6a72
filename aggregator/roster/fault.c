#include "aggregator/roster/fault.h"

#include <string.h>

#include "runtime/base/utf8.h"

// Hides control characters of both sets; blanks except the space, with which a text could imitate
// the columns of a table; marks that are not seen or stand above others, separators of lines and
// overrides of direction (Unicode, 23.2); private and special characters.
bool cn_fault_is_printable(uint32_t point)
{
    static const uint32_t hidden[][2] = {
        {0x00, 0x1f},     {0x7f, 0xa0},     {0xad, 0xad},        {0x300, 0x36f},   {0x61c, 0x61c},
        {0x115f, 0x1160}, {0x1680, 0x1680}, {0x180b, 0x180f},    {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
        {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f},    {0x20d0, 0x20ff}, {0x2800, 0x2800},
        {0x3000, 0x3000}, {0x3164, 0x3164}, {0xe000, 0xf8ff},    {0xfe00, 0xfe2f}, {0xfeff, 0xfeff},
        {0xffa0, 0xffa0}, {0xfff0, 0xffff}, {0xe0000, 0x10ffff},
    };

    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
        if (point >= hidden[i][0] && point <= hidden[i][1])
            return false;
    return true;
}

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
        if (size && cn_fault_is_printable(point)) {
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
