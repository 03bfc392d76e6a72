#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"error", "warn", "info", "debug"};
static atomic_int threshold = CN_LOG_INFO;
static char prefix[130]; // "NAME ", or empty

void cn_log_set_level(enum cn_log_level level)
{
    atomic_store(&threshold, (int)level);
}

void cn_log_set_name(const char *name)
{
    snprintf(prefix, sizeof(prefix), "%.127s ", name);
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

void cn_log(enum cn_log_level level, const char *area, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    int used;
    size_t length;

    if ((int)level > atomic_load(&threshold))
        return;
    used = snprintf(line, sizeof(line), "%-5s %s%s: ", names[level], prefix, area);
    va_start(arguments, format);
    vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, arguments);
    va_end(arguments);
    length = strlen(line);
    line[length] = '\n';
    if (write(STDERR_FILENO, line, length + 1) < 0)
        return; // a failure to log cannot be reported anywhere
}
