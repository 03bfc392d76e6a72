// tile.h - the micro-kernel: a block of rows x TILE_COLS of a product, held in registers.
//
// All matrix products and convolutions come down to it. It is written with the vector extensions of
// GCC and Clang, so one source serves SSE, AVX2, AVX-512 and NEON.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__)
#define VECTOR 16
#define TILE_ROWS 12
#elif defined(__AVX2__)
#define VECTOR 8
#define TILE_ROWS 6
#elif defined(__aarch64__)
#define VECTOR 4
#define TILE_ROWS 8
#else
#define VECTOR 4
#define TILE_ROWS 6
#endif
#define TILE_VECTORS 2
#define TILE_COLS (VECTOR * TILE_VECTORS)

typedef float vector __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

// What a tile multiplies: a is rows x inner with any strides; row k of b starts at b + offsets[k],
// or at b + k * b_row when offsets is NULL, and its columns are contiguous.
struct tile {
    size_t inner;
    const float *a;
    size_t a_row, a_col;
    const float *b;
    size_t b_row;
    const int32_t *offsets;
    float *c; // contiguous columns
    size_t c_row;
    bool add; // c += a b, else c = a b
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// rows is a constant at every call, so the accumulators stay in registers.
ALWAYS_INLINE void tile_run(const struct tile *tile, const size_t rows, const bool scattered)
{
    vector sum[TILE_ROWS][TILE_VECTORS];
    const float *a = tile->a;
    const float *b = tile->b;
    const size_t a_row = tile->a_row, a_col = tile->a_col, b_row = tile->b_row;
    const int32_t *offsets = tile->offsets;

#pragma GCC unroll 16
    for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (size_t j = 0; j < TILE_VECTORS; j++)
            sum[i][j] = (vector){0};
    for (size_t k = 0; k < tile->inner; k++, a += a_col) {
        const float *row = scattered ? b + offsets[k] : b;
        vector value[TILE_VECTORS];

#pragma GCC unroll 4
        for (size_t j = 0; j < TILE_VECTORS; j++)
            value[j] = *(const vector *)(row + j * VECTOR);
#pragma GCC unroll 16
        for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (size_t j = 0; j < TILE_VECTORS; j++)
                sum[i][j] += a[i * a_row] * value[j];
        b += b_row;
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (size_t j = 0; j < TILE_VECTORS; j++) {
            vector *to = (vector *)(tile->c + i * tile->c_row + j * VECTOR);

            if (tile->add)
                sum[i][j] += *to;
            *to = sum[i][j];
        }
}

ALWAYS_INLINE void tile_rows(const struct tile *tile, const size_t rows)
{
    if (tile->offsets)
        tile_run(tile, rows, true);
    else
        tile_run(tile, rows, false);
}

// Rows of the next tile when left are to do: TILE_ROWS, or one of the smaller sizes.
ALWAYS_INLINE size_t tile_height(size_t left)
{
    if (left >= TILE_ROWS)
        return TILE_ROWS;
#if TILE_ROWS > 8
    if (left >= 8)
        return 8;
#endif
    if (left >= 4)
        return 4;
    return left >= 2 ? 2 : 1;
}

// rows is a result of tile_height.
static inline void tile_multiply(const struct tile *tile, size_t rows)
{
    switch (rows) {
    case TILE_ROWS:
        tile_rows(tile, TILE_ROWS);
        break;
#if TILE_ROWS > 8
    case 8:
        tile_rows(tile, 8);
        break;
#endif
    case 4:
        tile_rows(tile, 4);
        break;
    case 2:
        tile_rows(tile, 2);
        break;
    default:
        tile_rows(tile, 1);
        break;
    }
}
