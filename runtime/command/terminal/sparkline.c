#include "runtime/command/terminal/sparkline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEVELS 8

// Returns the mean of the finite values; NaN if there is none.
static double mean_of(const double *values, size_t count)
{
    double sum = 0;
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        sum += values[i];
        known++;
    }
    return known ? sum / (double)known : NAN;
}

static size_t draw_level(double value, double least, double largest, bool blocks, char *text)
{
    static const char plain[LEVELS + 1] = "_.-:=+*#";
    if (isnan(value)) {
        text[0] = ' ';
        return 1;
    }
    double share = largest > least ? (value - least) / (largest - least) : 0.5;
    int level = (int)(share * (LEVELS - 1) + 0.5);
    if (!blocks) {
        text[0] = plain[level];
        return 1;
    }
    text[0] = '\xe2'; // U+2581 is the lowest of eight blocks
    text[1] = '\x96';
    text[2] = (char)('\x81' + level);
    return 3;
}

void cn_sparkline_draw(const double *values, size_t count, size_t columns, bool blocks,
                       char text[CN_SPARKLINE_SIZE])
{
    double means[CN_SPARKLINE_WIDTH], least = INFINITY, largest = -INFINITY;
    size_t at = 0;
    if (columns > CN_SPARKLINE_WIDTH)
        columns = CN_SPARKLINE_WIDTH;
    if (columns > count)
        columns = count;
    for (size_t i = 0; i < columns; i++) {
        size_t begin = i * count / columns, end = (i + 1) * count / columns;
        means[i] = mean_of(values + begin, end - begin);
        least = fmin(least, means[i]);
        largest = fmax(largest, means[i]);
    }
    for (size_t i = 0; i < columns; i++)
        at += draw_level(means[i], least, largest, blocks, text + at);
    text[at] = '\0';
}

void cn_sparkline_bar(double share, size_t columns, char text[CN_SPARKLINE_SIZE])
{
    if (columns > CN_SPARKLINE_WIDTH)
        columns = CN_SPARKLINE_WIDTH;
    if (columns < 3)
        columns = 3;
    size_t inside = columns - 2;
    double within = share > 1 ? 1 : share > 0 ? share : 0;
    size_t filled = (size_t)(within * (double)inside + 0.5);
    text[0] = '[';
    memset(text + 1, '#', filled);
    memset(text + 1 + filled, '.', inside - filled);
    memcpy(text + 1 + inside, "]", 2);
}
