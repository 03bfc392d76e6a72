// row.h - a row of weights in float32, or rounded to bfloat16 in half the memory.
//
// It stores residuals until they are needed. A bfloat16 is the 16 high bits of a float32, rounded
// to the nearest, ties to even. A zeroed struct is an empty row, which deinit accepts.
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

struct cn_row {
    void *data; // owned, of scratch.h; array of float, or of uint16_t when half; NULL: empty
    bool half;  // elements are bfloat16
};

// Allocates count zeros. Does nothing when the row is not empty. Returns CN_ENOMEM.
cn_err cn_row_allocate(struct cn_row *row, size_t count, bool half);
void cn_row_deinit(struct cn_row *row);

// Returns the bytes of an element: 4, or 2 when half.
size_t cn_row_width(const struct cn_row *row);

// Read copies elements [first, first + count) of the row to `to`; write replaces them by `from`. A
// half row widens or rounds them. The row is not empty and the range lies within it.
void cn_row_read(const struct cn_row *row, size_t first, size_t count, float *to);
void cn_row_write(struct cn_row *row, size_t first, size_t count, const float *from);

// Rounds values as a half row does.
void cn_row_round(float *values, size_t count);

// A row that is filled from its first value on.
struct cn_row_filling {
    struct cn_row row;
    size_t done; // values so far
};

// Writes the next values to the struct cn_row_filling `to`. They lie within its row.
void cn_row_fill(void *to, const float *values, size_t count);

// For i in [0, count), add does to[i] += row[first + i] and subtract to[i] -= row[first + i].
void cn_row_add(const struct cn_row *row, size_t first, size_t count, float *to);
void cn_row_subtract(const struct cn_row *row, size_t first, size_t count, float *to);
