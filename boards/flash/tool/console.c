#include "boards/flash/tool/console.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/printable.h"
#include "runtime/port/platform.h"

#define LINE_SIZE 1024
#define PIPE_MS 5000
#define TERMINAL_MS 200

static struct {
    bool json;
    bool drawing; // a line of progress is on the terminal
    uint64_t drawn_ms;
} talk;

void cn_console_set_json(bool json)
{
    talk.json = json;
}

static void print_object(const char *kind, const char *text, const char *next)
{
    cJSON *object = cJSON_CreateObject();
    char *line;

    cJSON_AddStringToObject(object, "event", kind);
    cJSON_AddStringToObject(object, "text", text);
    if (next)
        cJSON_AddStringToObject(object, "next", next);
    line = cJSON_PrintUnformatted(object);
    printf("%s\n", line ? line : "{}");
    fflush(stdout);
    cJSON_free(line);
    cJSON_Delete(object);
}

void cn_console_step(const char *kind, const char *format, ...)
{
    char text[LINE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    cn_printable_clean(text);
    cn_console_progress_end();
    if (talk.json) {
        print_object(kind, text, NULL);
        return;
    }
    printf("%s\n", text);
    fflush(stdout);
}

void cn_console_error(const char *next, const char *format, ...)
{
    char text[LINE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    cn_printable_clean(text);
    cn_console_progress_end();
    if (talk.json) {
        print_object("error", text, next);
        return;
    }
    fprintf(stderr, "error: %s\n", text);
    if (next)
        fprintf(stderr, "    %s\n", next);
}

void cn_console_progress(const char *work, uint64_t done, uint64_t total, uint64_t begun_ms)
{
    uint64_t now_ms = cn_platform_now_ms(), spent_ms = now_ms - begun_ms;
    bool terminal = !talk.json && isatty(STDOUT_FILENO);
    double rate = spent_ms ? (double)done / (double)spent_ms * 1000 : 0; // bytes a second
    double left_s = rate > 0 ? (double)(total - done) / rate : 0;

    if (now_ms - (talk.drawn_ms > begun_ms ? talk.drawn_ms : begun_ms) <
        (terminal ? TERMINAL_MS : PIPE_MS))
        return;
    talk.drawn_ms = now_ms;
    if (talk.json) {
        printf("{\"event\":\"progress\",\"work\":\"%s\",\"done\":%" PRIu64 ",\"total\":%" PRIu64
               ",\"left_s\":%."
               "0f}\n",
               work, done, total, left_s);
        fflush(stdout);
        return;
    }
    printf("%s%s %3.0f %%, %.1f MB/s, %.0f s left%s", terminal ? "\r" : "", work,
           total ? 100 * (double)done / (double)total : 100, rate / 1e6, left_s,
           terminal ? "\033[K" : "\n");
    fflush(stdout);
    talk.drawing = terminal;
}

void cn_console_progress_end(void)
{
    if (talk.drawing)
        fputs("\r\033[K", stdout);
    talk.drawing = false;
}
