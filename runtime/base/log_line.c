#include "runtime/base/log_line.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/utf8.h"

#define END_MS 253402300800000 // the year 10000, which RFC 3339 cannot write
#define TIME_SIZE 32
#define UNIT_SIZE 8 // longest escape or character, with its zero

static const int priorities[] = {3, 4, 6, 7}; // syslog's, as sd-daemon(3) has them

static void write_time(const struct cn_log_event *event, char text[TIME_SIZE])
{
    time_t seconds = (time_t)(event->unix_ms / 1000);
    struct tm utc;

    if (event->unix_ms < CN_CLOCK_SET_S * 1000 || event->unix_ms >= END_MS ||
        !gmtime_r(&seconds, &utc)) {
        snprintf(text, TIME_SIZE, "+%" PRIu64 ".%03us", event->boot_ms / 1000,
                 (unsigned)(event->boot_ms % 1000));
        return;
    }
    strftime(text, TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + strlen(text), TIME_SIZE - strlen(text), ".%03uZ",
             (unsigned)(event->unix_ms % 1000));
}

// Returns whether a character would begin another line, command a terminal or turn the direction of
// text.
static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code < 0x202f) ||
           (code >= 0x2066 && code < 0x206a);
}

// Writes the first character of text as the line shows it. Returns its number of bytes in text. In
// JSON (RFC 8259, section 7) a byte that is not UTF-8 becomes the replacement character.
static size_t write_character(bool json, const char *text, char unit[UNIT_SIZE])
{
    uint32_t code;
    size_t size = cn_utf8_read(text, &code);

    if (size == 0 && json)
        snprintf(unit, UNIT_SIZE, "\\ufffd");
    else if (size == 0)
        snprintf(unit, UNIT_SIZE, "\\x%02x", (unsigned)(unsigned char)*text);
    else if (json && (code == '"' || code == '\\'))
        snprintf(unit, UNIT_SIZE, "\\%c", (char)code);
    else if (is_control(code))
        snprintf(unit, UNIT_SIZE, "\\u%04x", (unsigned)(code & 0xffff));
    else
        snprintf(unit, UNIT_SIZE, "%.*s", (int)size, text);
    return size ? size : 1;
}

// Appends message to line, whose first used bytes are written, and cuts it so that `end` bytes stay
// free. Returns the number of bytes that are used then.
static size_t append_message(bool json, const char *message, size_t end, char *line, size_t used)
{
    char unit[UNIT_SIZE];

    while (*message) {
        size_t size = write_character(json, message, unit), length = strlen(unit);

        if (used + length + end > CN_LOG_LINE_SIZE)
            break;
        memcpy(line + used, unit, length); // NOLINT(bugprone-not-null-terminated-result): bytes
        used += length;
        message += size;
    }
    return used;
}

// {"time":"...","level":"info","name":"board-1.2","area":"run","message":"..."}
static size_t write_json(const struct cn_log_event *event, char line[CN_LOG_LINE_SIZE])
{
    char time[TIME_SIZE];
    size_t used;

    write_time(event, time);
    used = (size_t)snprintf(line, CN_LOG_LINE_SIZE, "{\"time\":\"%s\",\"level\":\"%s\"", time,
                            cn_log_level_name(event->level));
    if (event->name[0]) {
        used += (size_t)snprintf(line + used, CN_LOG_LINE_SIZE - used, ",\"name\":\"");
        used = append_message(true, event->name, CN_LOG_LINE_SIZE / 2, line, used);
        line[used++] = '"';
    }
    used += (size_t)snprintf(line + used, CN_LOG_LINE_SIZE - used,
                             ",\"area\":\"%.63s\",\"message\":\"", event->area);
    used = append_message(true, event->message, 3, line, used);
    memcpy(line + used, "\"}\n", 3); // NOLINT(bugprone-not-null-terminated-result): bytes
    return used + 3;
}

size_t cn_log_write_line(enum cn_log_format format, const struct cn_log_event *event,
                         char line[CN_LOG_LINE_SIZE])
{
    const char *level = cn_log_level_name(event->level);
    const char *space = event->name[0] ? " " : "";
    char time[TIME_SIZE];
    size_t used;

    if (format == CN_LOG_JSON)
        return write_json(event, line);
    if (format == CN_LOG_JOURNAL) {
        used = (size_t)snprintf(line, CN_LOG_LINE_SIZE,
                                "<%d>%-5s %.127s%s%.63s: ", priorities[event->level], level,
                                event->name, space, event->area);
    } else {
        write_time(event, time);
        used = (size_t)snprintf(line, CN_LOG_LINE_SIZE, "%s %-5s %.127s%s%.63s: ", time, level,
                                event->name, space, event->area);
    }
    used = append_message(false, event->message, 1, line, used);
    line[used] = '\n';
    return used + 1;
}
