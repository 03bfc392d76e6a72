#include "runtime/command/terminal/wrap.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define NARROWEST 40 // columns; on a narrower terminal lines stay whole

// Returns the columns of standard output; 0 when standard output is no terminal.
static unsigned columns(void)
{
    struct winsize size;

    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
        return 0;
    return size.ws_col;
}

// Returns whether a character begins with this byte: bytes 10xxxxxx continue a character of UTF-8.
static bool begins(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}

size_t cn_wrap_fit(const char *text, unsigned width)
{
    size_t space = 0, best = 0, at = 0;
    unsigned column = 0;

    for (; text[at]; at++) {
        if (text[at] == ' ' && at && text[at - 1] != ' ' && column <= width) {
            space = at;
            if (text[at - 1] == ';' || text[at + 1] == ' ')
                best = at;
        }
        column += begins(text[at]);
        if (column > width && space)
            return best > space / 2 ? best : space;
    }
    return at;
}

void cn_wrap_print(const char *line, unsigned indent)
{
    unsigned wide = columns(), left = 0;

    while (wide >= NARROWEST && wide > indent) {
        // The spaces that a line begins with are no place to break it.
        size_t margin = left ? 0 : strspn(line, " ");
        size_t length = margin + cn_wrap_fit(line + margin, wide - left - (unsigned)margin);

        if (!line[length])
            break;
        printf("%.*s\n%*s", (int)length, line, (int)indent, "");
        line += length + strspn(line + length, " ");
        left = indent;
    }
    puts(line);
}

void cn_wrap_print_all(char *text, unsigned indent)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        bool ends = text[length] == '\0';

        text[length] = '\0';
        cn_wrap_print(text, indent);
        text += length + !ends;
    }
}
