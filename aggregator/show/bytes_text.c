#include "aggregator/show/bytes_text.h"

#include <stddef.h>
#include <stdio.h>

void cn_bytes_text(uint64_t bytes, char text[CN_BYTES_TEXT_SIZE])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000;
        unit++;
    }
    snprintf(text, CN_BYTES_TEXT_SIZE, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}
