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

const char *cn_diag_first(const struct cn_diag *diag)
{
    return diag->count ? diag->lines[0] : "";
}
