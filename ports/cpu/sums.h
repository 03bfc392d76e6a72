// sums.h - the sum of a row, and of the products of two rows, in eight parts that fill a vector.
//
// The order of the additions depends on count only.
#pragma once

#include <stddef.h>

// Returns the sum of row.
static inline float row_sum(const float *row, size_t count)
{
    float part[8] = {0};
    float sum = 0;
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        for (size_t j = 0; j < 8; j++)
            part[j] += row[i + j];
    for (; i < count; i++)
        sum += row[i];
    for (size_t j = 0; j < 8; j++)
        sum += part[j];
    return sum;
}

// Returns the sum of a[i] * b[i].
static inline float row_dot(const float *a, const float *b, size_t count)
{
    float part[8] = {0};
    float sum = 0;
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        for (size_t j = 0; j < 8; j++)
            part[j] += a[i + j] * b[i + j];
    for (; i < count; i++)
        sum += a[i] * b[i];
    for (size_t j = 0; j < 8; j++)
        sum += part[j];
    return sum;
}
