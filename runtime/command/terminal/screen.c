#include "runtime/command/terminal/screen.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS 80
#define ROWS 24
#define MINUTE 60u
#define HOUR 3600u
#define DAY 86400u

bool cn_screen_is_live(FILE *stream)
{
    const char *type = getenv("TERM");
    return isatty(fileno(stream)) && !(type && strcmp(type, "dumb") == 0);
}

bool cn_screen_has_colors(FILE *stream)
{
    const char *none = getenv("NO_COLOR");
    return cn_screen_is_live(stream) && !(none && *none);
}

bool cn_screen_has_blocks(void)
{
    // The first variable that is set counts, as for setlocale.
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

static bool measure(FILE *stream, struct winsize *size)
{
    return isatty(fileno(stream)) && ioctl(fileno(stream), TIOCGWINSZ, size) == 0;
}

unsigned cn_screen_columns(FILE *stream)
{
    struct winsize size;
    return measure(stream, &size) && size.ws_col ? size.ws_col : COLUMNS;
}

unsigned cn_screen_rows(FILE *stream)
{
    struct winsize size;
    return measure(stream, &size) && size.ws_row ? size.ws_row : ROWS;
}

void cn_screen_paint(FILE *stream, enum cn_screen_color color, const char *text)
{
    // ECMA-48, 8.3.117: select graphic rendition
    static const char *const codes[] = {[CN_SCREEN_BOLD] = "1",
                                        [CN_SCREEN_GREEN] = "32",
                                        [CN_SCREEN_YELLOW] = "33",
                                        [CN_SCREEN_RED] = "31"};
    if (cn_screen_has_colors(stream))
        fprintf(stream, "\033[%sm%s\033[0m", codes[color], text);
    else
        fputs(text, stream);
}

int cn_screen_fit(const char *text, unsigned width)
{
    int at = 0;
    // Bytes 10xxxxxx continue a character of UTF-8; each character takes one column.
    for (unsigned column = 0; text[at]; at++) {
        column += ((unsigned char)text[at] & 0xc0) != 0x80;
        if (column > width)
            break;
    }
    return at;
}

void cn_screen_draw(FILE *stream, const char *text)
{
    if (!cn_screen_is_live(stream))
        return;
    // The line leaves the last column empty, else it would wrap. The next output begins at the
    // left.
    fprintf(stream, "\033[K%.*s\r", cn_screen_fit(text, cn_screen_columns(stream) - 1), text);
    fflush(stream);
}

void cn_screen_clear(FILE *stream)
{
    if (cn_screen_is_live(stream))
        fputs("\033[K", stream);
}

void cn_screen_time_left(uint64_t elapsed_ms, uint64_t done, uint64_t total,
                         char text[CN_SCREEN_LEFT_SIZE])
{
    text[0] = '\0';
    if (done == 0 || done >= total)
        return;
    double left_s = (double)elapsed_ms / 1000 / (double)done * (double)(total - done);
    if (left_s < 1)
        return;
    if (left_s < 2 * MINUTE)
        snprintf(text, CN_SCREEN_LEFT_SIZE, "about %.0f s left", left_s);
    else if (left_s < 2 * HOUR)
        snprintf(text, CN_SCREEN_LEFT_SIZE, "about %.0f min left", left_s / MINUTE);
    else if (left_s < 2 * DAY)
        snprintf(text, CN_SCREEN_LEFT_SIZE, "about %.0f h left", left_s / HOUR);
    else
        snprintf(text, CN_SCREEN_LEFT_SIZE, "about %.0f days left", left_s / DAY);
}
