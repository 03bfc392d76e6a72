#include "runtime/base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log_line.h"
#include "runtime/base/log_recent.h"

#define CLEAR "\033[K" // clears a terminal's line from the cursor on
#define CLEAR_SIZE (sizeof(CLEAR) - 1)

static const char *const names[] = {"error", "warn", "info", "debug"};
static atomic_int threshold = CN_LOG_INFO;
static atomic_int form = CN_LOG_TEXT;
static atomic_bool over_line;
static struct {
    char name[CN_LOG_AREA_SIZE];
    enum cn_log_level level;
} areas[CN_LOG_AREAS]; // areas with a level of their own
static size_t area_count;
static char process[128]; // the name that cn_log_set_name was given

void cn_log_set_level(enum cn_log_level level)
{
    atomic_store(&threshold, (int)level);
}

void cn_log_set_format(enum cn_log_format format)
{
    atomic_store(&form, (int)format);
}

void cn_log_set_over_line(bool over)
{
    atomic_store(&over_line, over);
}

enum cn_log_format cn_log_find_format(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char own[64];
    struct stat info;

    if (!stream || fstat(STDERR_FILENO, &info))
        return CN_LOG_TEXT;
    snprintf(own, sizeof(own), "%" PRIu64 ":%" PRIu64, (uint64_t)info.st_dev,
             (uint64_t)info.st_ino);
    return strcmp(stream, own) == 0 ? CN_LOG_JOURNAL : CN_LOG_TEXT;
}

void cn_log_set_name(const char *name)
{
    snprintf(process, sizeof(process), "%s", name);
}

cn_err cn_log_set_area_level(const char *area, enum cn_log_level level)
{
    size_t place = 0;

    while (place < area_count && strcmp(areas[place].name, area) != 0)
        place++;
    if (!*area || strlen(area) >= CN_LOG_AREA_SIZE || place == CN_LOG_AREAS)
        return CN_ERANGE;
    snprintf(areas[place].name, sizeof(areas[place].name), "%s", area);
    areas[place].level = level;
    area_count += place == area_count;
    return CN_OK;
}

bool cn_log_is_written(enum cn_log_level level, const char *area)
{
    for (size_t i = 0; i < area_count; i++)
        if (strcmp(areas[i].name, area) == 0)
            return level <= areas[i].level;
    return (int)level <= atomic_load(&threshold);
}

const char *cn_log_level_name(enum cn_log_level level)
{
    return names[level];
}

cn_err cn_log_parse_level(const char *text, enum cn_log_level *level)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *level = (enum cn_log_level)i;
            return CN_OK;
        }
    }
    return CN_EINVAL;
}

static int64_t read_ms(clockid_t clock)
{
    struct timespec now = {0};

    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void cn_log(enum cn_log_level level, const char *area, const char *format, ...)
{
    char message[CN_LOG_LINE_SIZE], line[CLEAR_SIZE + CN_LOG_LINE_SIZE];
    struct cn_log_event event = {.level = level, .name = process, .area = area, .message = message};
    va_list arguments;
    size_t length, begin;

    if (!cn_log_is_written(level, area))
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    event.unix_ms = read_ms(CLOCK_REALTIME);
    event.boot_ms = (uint64_t)read_ms(CLOCK_BOOTTIME);
    begin = atomic_load(&over_line) ? CLEAR_SIZE : 0;
    memcpy(line, CLEAR, begin);
    length = cn_log_write_line((enum cn_log_format)atomic_load(&form), &event, line + begin);
    // A failure to log cannot be reported anywhere.
    (void)!write(STDERR_FILENO, line, begin + length);
    if (cn_log_recent_is_open()) // with the time, also under journald
        cn_log_recent_add(line, cn_log_write_line(CN_LOG_TEXT, &event, line));
}
