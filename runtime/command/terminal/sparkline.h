// sparkline.h - a curve in one line of text.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define CN_SPARKLINE_WIDTH 200 // most columns
#define CN_SPARKLINE_SIZE (3 * CN_SPARKLINE_WIDTH + 1)

// Draws the values, scaled from their least to their largest, in at most `columns` columns and at
// most CN_SPARKLINE_WIDTH. With more values than columns, a column is the mean of several. NaN is
// drawn as a gap. With blocks, draws U+2581 to U+2588; without, ASCII.
void cn_sparkline_draw(const double *values, size_t count, size_t columns, bool blocks,
                       char text[CN_SPARKLINE_SIZE]);

// Draws a bar of `columns` columns for a share from 0 to 1: "[####....]".
void cn_sparkline_bar(double share, size_t columns, char text[CN_SPARKLINE_SIZE]);
