#include "runtime/base/diag.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void cn_diag_init(struct cn_diag *diag)
{
    diag->count = 0;
    diag->lines[0][0] = '\0';
}

void cn_diag_add(struct cn_diag *diag, const char *format, ...)
{
    va_list arguments;

    if (!diag)
        return;
    if (diag->count < CN_DIAG_LINES) {
        va_start(arguments, format);
        vsnprintf(diag->lines[diag->count], CN_DIAG_LINE_SIZE, format, arguments);
        va_end(arguments);
    }
    diag->count++;
}

static bool begins_with(const char *line, const char *path)
{
    size_t length = strlen(path);

    return strncmp(line, path, length) == 0 && line[length] == ':';
}

void cn_diag_add_about(struct cn_diag *diag, const char *path, const struct cn_diag *more)
{
    for (size_t i = 0; i < more->count && i < CN_DIAG_LINES; i++)
        if (begins_with(more->lines[i], path))
            cn_diag_add(diag, "%s", more->lines[i]);
        else
            cn_diag_add(diag, "%s: %s", path, more->lines[i]);
}

const char *cn_diag_first(const struct cn_diag *diag)
{
    return diag->count ? diag->lines[0] : "";
}
