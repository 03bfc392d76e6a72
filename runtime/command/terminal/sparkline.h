// sparkline.h - a curve in one line of text.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define CN_SPARKLINE_WIDTH 200                         // most columns
#define CN_SPARKLINE_SIZE (3 * CN_SPARKLINE_WIDTH + 1) // bytes of a curve or bar in UTF-8

// Draws count values, scaled from the smallest to the largest, in at most `columns` columns and at
// most CN_SPARKLINE_WIDTH. With more values than columns, a column shows the mean of several.
// Values that are not finite are left out; a column without any other is a gap. With blocks, draws
// U+2581 to U+2588; without, ASCII characters.
void cn_sparkline_draw(const double *values, size_t count, size_t columns, bool blocks,
                       char text[CN_SPARKLINE_SIZE]);

// Draws a bar for a share from 0 to 1: "[####....]". It has `columns` columns, but at least 3 and
// at most CN_SPARKLINE_WIDTH.
void cn_sparkline_bar(double share, size_t columns, char text[CN_SPARKLINE_SIZE]);
