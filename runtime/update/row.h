// row.h - a row of weights in float32, or rounded to bfloat16 in half the memory.
//
// For what waits: residuals. A bfloat16 is the 16 high bits of a float32, rounded to the nearest,
// ties to even. Zeroed is empty; deinit accepts that. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

struct cn_row {
    void *data; // owned; float or uint16_t; NULL: empty
    bool half;
};

// Zeros; a row that is there stays as it is.
cn_err cn_row_allocate(struct cn_row *row, size_t count, bool half);
void cn_row_deinit(struct cn_row *row);

size_t cn_row_width(const struct cn_row *row); // bytes of an element

void cn_row_read(const struct cn_row *row, size_t first, size_t count, float *to);
void cn_row_write(struct cn_row *row, size_t first, size_t count, const float *from);

// to[i] += row[first + i]; to[i] -= row[first + i]
void cn_row_add(const struct cn_row *row, size_t first, size_t count, float *to);
void cn_row_subtract(const struct cn_row *row, size_t first, size_t count, float *to);
