#include "runtime/base/printable.h"

#include <stddef.h>
#include <string.h>

#include "runtime/base/utf8.h"

// Hides control characters of both sets; blanks except the space, with which a text could imitate
// the columns of a table; marks that are not seen or stand above others, separators of lines and
// overrides of direction (Unicode, 23.2); private and special characters.
bool cn_is_printable(uint32_t point)
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

void cn_printable_clean(char *text)
{
    char *to = text;
    uint32_t point;

    for (const char *from = text; *from;) {
        size_t size = cn_utf8_read(from, &point);

        if (size && cn_is_printable(point)) {
            memmove(to, from, size);
            to += size;
        } else {
            *to++ = '?';
        }
        from += size ? size : 1;
    }
    *to = '\0';
}

void cn_printable_clean_lines(char *text)
{
    char *to = text, *end;

    do {
        size_t size;

        end = strchr(text, '\n');
        if (end)
            *end = '\0';
        cn_printable_clean(text);
        size = strlen(text);
        memmove(to, text, size);
        to += size;
        *to++ = end ? '\n' : '\0';
        text = end ? end + 1 : text;
    } while (end);
}
