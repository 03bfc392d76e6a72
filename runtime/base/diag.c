#include "runtime/base/diag.h"

#include <stdarg.h>
#include <stdio.h>

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

void cn_diag_add_about(struct cn_diag *diag, const char *path, const struct cn_diag *more)
{
    for (size_t i = 0; i < more->count && i < CN_DIAG_LINES; i++)
        cn_diag_add(diag, "%s: %s", path, more->lines[i]);
}

const char *cn_diag_first(const struct cn_diag *diag)
{
    return diag->count ? diag->lines[0] : "";
}
