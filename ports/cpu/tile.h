// tile.h - the micro-kernel: a block of a product of rows x TILE_COLS, held in registers.
//
// All matrix products and convolutions use it. It is written with the vector extensions of GCC and
// Clang, so one source serves SSE, AVX2, AVX-512 and NEON.
#pragma once

#include <stdbool.h>
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
typedef float vector4 __attribute__((vector_size(16), aligned(4), may_alias));

// The operands of a tile. a is rows x inner with any strides. Row k of b begins at b + offsets[k],
// or at b + k * b_row if offsets is NULL; its columns are contiguous.
struct tile {
    size_t inner;
    const float *a;
    size_t a_row, a_col;
    const float *b;
    size_t b_row;
    const int32_t *offsets;
    float *c; // its columns are contiguous
    size_t c_row;
    bool add;    // c += a b, else c = a b
    bool narrow; // compute only the first VECTOR columns
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// Computes a tile. rows, vectors and scattered are compile-time constants, so the sums stay in
// registers.
ALWAYS_INLINE void tile_run(const struct tile *tile, const size_t rows, const size_t vectors,
                            const bool scattered)
{
    vector sum[TILE_ROWS][TILE_VECTORS];
    const float *a = tile->a;
    const float *b = tile->b;
    const size_t a_row = tile->a_row, a_col = tile->a_col, b_row = tile->b_row;
    const int32_t *offsets = tile->offsets;

#pragma GCC unroll 16
    for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (size_t j = 0; j < vectors; j++)
            sum[i][j] = (vector){0};
    for (size_t k = 0; k < tile->inner; k++, a += a_col) {
        const float *row = scattered ? b + offsets[k] : b;
        vector value[TILE_VECTORS];

#pragma GCC unroll 4
        for (size_t j = 0; j < vectors; j++)
            value[j] = *(const vector *)(row + j * VECTOR);
#pragma GCC unroll 16
        for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (size_t j = 0; j < vectors; j++)
                sum[i][j] += a[i * a_row] * value[j];
        b += b_row;
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (size_t j = 0; j < vectors; j++) {
            vector *to = (vector *)(tile->c + i * tile->c_row + j * VECTOR);

            if (tile->add)
                sum[i][j] += *to;
            *to = sum[i][j];
        }
}

// Computes a tile by the variant of tile_run that suits it; the packed variant has constant
// strides.
ALWAYS_INLINE void tile_rows(const struct tile *tile, const size_t rows)
{
    struct tile packed = *tile;

    if (tile->offsets) {
        tile_run(tile, rows, TILE_VECTORS, true);
    } else if (tile->narrow) {
        tile_run(tile, rows, 1, false);
    } else if (tile->a_row == 1 && tile->a_col == rows && tile->b_row == TILE_COLS) {
        packed.a_row = 1;
        packed.a_col = rows;
        packed.b_row = TILE_COLS;
        tile_run(&packed, rows, TILE_VECTORS, false);
    } else {
        tile_run(tile, rows, TILE_VECTORS, false);
    }
}

// Returns the rows of the next tile when left rows remain: TILE_ROWS, or one of the smaller sizes.
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

// Computes a tile. rows is a result of tile_height.
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

// Transposes a block of 4 x 4: to[j * to_row + i] = from[i * from_row + j].
ALWAYS_INLINE void transpose_4x4(float *to, size_t to_row, const float *from, size_t from_row)
{
    vector4 a = *(const vector4 *)from, b = *(const vector4 *)(from + from_row);
    vector4 c = *(const vector4 *)(from + 2 * from_row),
            d = *(const vector4 *)(from + 3 * from_row);
    vector4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    vector4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    vector4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    vector4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);

    *(vector4 *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(vector4 *)(to + to_row) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(vector4 *)(to + 2 * to_row) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(vector4 *)(to + 3 * to_row) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

#if VECTOR == 16
#define QUARTERS(a, b, c, d)                                                                       \
    a, b, c, d, (a) + 4, (b) + 4, (c) + 4, (d) + 4, (a) + 8, (b) + 8, (c) + 8, (d) + 8, (a) + 12,  \
        (b) + 12, (c) + 12, (d) + 12

// Stores quarter q of value at row 4 * q of to.
ALWAYS_INLINE void store_quarters(float *to, size_t to_row, vector value)
{
    *(vector4 *)to = __builtin_shufflevector(value, value, 0, 1, 2, 3);
    *(vector4 *)(to + 4 * to_row) = __builtin_shufflevector(value, value, 4, 5, 6, 7);
    *(vector4 *)(to + 8 * to_row) = __builtin_shufflevector(value, value, 8, 9, 10, 11);
    *(vector4 *)(to + 12 * to_row) = __builtin_shufflevector(value, value, 12, 13, 14, 15);
}

// Does transpose_4x4 for four blocks side by side.
ALWAYS_INLINE void transpose_4x16(float *to, size_t to_row, const float *from, size_t from_row)
{
    vector a = *(const vector *)from, b = *(const vector *)(from + from_row);
    vector c = *(const vector *)(from + 2 * from_row), d = *(const vector *)(from + 3 * from_row);
    vector ab_low = __builtin_shufflevector(a, b, QUARTERS(0, 16, 1, 17));
    vector ab_high = __builtin_shufflevector(a, b, QUARTERS(2, 18, 3, 19));
    vector cd_low = __builtin_shufflevector(c, d, QUARTERS(0, 16, 1, 17));
    vector cd_high = __builtin_shufflevector(c, d, QUARTERS(2, 18, 3, 19));

    store_quarters(to, to_row, __builtin_shufflevector(ab_low, cd_low, QUARTERS(0, 1, 16, 17)));
    store_quarters(to + to_row, to_row,
                   __builtin_shufflevector(ab_low, cd_low, QUARTERS(2, 3, 18, 19)));
    store_quarters(to + 2 * to_row, to_row,
                   __builtin_shufflevector(ab_high, cd_high, QUARTERS(0, 1, 16, 17)));
    store_quarters(to + 3 * to_row, to_row,
                   __builtin_shufflevector(ab_high, cd_high, QUARTERS(2, 3, 18, 19)));
}

#undef QUARTERS
#endif

// Transposes rows x cols of from: to[j * to_row + i] = from[i * from_row + j].
static inline void tile_transpose(float *to, size_t to_row, const float *from, size_t from_row,
                                  size_t rows, size_t cols)
{
    size_t i = 0;

    for (; i + 4 <= rows; i += 4) {
        size_t j = 0;

#if VECTOR == 16
        for (; j + 16 <= cols; j += 16) {
            const float *at = from + i * from_row + j;

            for (size_t k = 4; k < 8; k++) // rows of the next block, one block ahead
                __builtin_prefetch(at + k * from_row);
            transpose_4x16(to + j * to_row + i, to_row, at, from_row);
        }
#endif
        for (; j + 4 <= cols; j += 4)
            transpose_4x4(to + j * to_row + i, to_row, from + i * from_row + j, from_row);
        for (; j < cols; j++)
            for (size_t k = 0; k < 4; k++)
                to[j * to_row + i + k] = from[(i + k) * from_row + j];
    }
    for (; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            to[j * to_row + i] = from[i * from_row + j];
}

// Returns the sum of all elements.
ALWAYS_INLINE float tile_sum(vector value)
{
#if VECTOR == 16
    typedef float vector8 __attribute__((vector_size(32)));
    vector8 half = __builtin_shufflevector(value, value, 0, 1, 2, 3, 4, 5, 6, 7) +
                   __builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15);
    vector4 quarter = __builtin_shufflevector(half, half, 0, 1, 2, 3) +
                      __builtin_shufflevector(half, half, 4, 5, 6, 7);
#elif VECTOR == 8
    vector4 quarter = __builtin_shufflevector(value, value, 0, 1, 2, 3) +
                      __builtin_shufflevector(value, value, 4, 5, 6, 7);
#else
    vector4 quarter = value;
#endif
    quarter += __builtin_shufflevector(quarter, quarter, 2, 3, 0, 1);
    return quarter[0] + quarter[1];
}

#if VECTOR == 16
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VECTOR == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#endif

// Return the elements with even and with odd numbers of a followed by b.
ALWAYS_INLINE vector tile_even(vector a, vector b)
{
    return __builtin_shufflevector(a, b, EVEN);
}

ALWAYS_INLINE vector tile_odd(vector a, vector b)
{
    return __builtin_shufflevector(a, b, ODD);
}

// Return the first and the second half of a and b interleaved.
ALWAYS_INLINE vector tile_low(vector a, vector b)
{
    return __builtin_shufflevector(a, b, LOW);
}

ALWAYS_INLINE vector tile_high(vector a, vector b)
{
    return __builtin_shufflevector(a, b, HIGH);
}

#undef EVEN
#undef ODD
#undef LOW
#undef HIGH

// Copies count words.
static inline void tile_copy(float *to, const float *from, size_t count)
{
    size_t i = 0;

    for (; i + VECTOR <= count; i += VECTOR)
        *(vector *)(to + i) = *(const vector *)(from + i);
    for (; i < count; i++)
        to[i] = from[i];
}

// Copies every second word of from. One more word of from may be read.
static inline void tile_copy_even(float *to, const float *from, size_t count)
{
    size_t i = 0;

    for (; i + VECTOR <= count; i += VECTOR)
        *(vector *)(to + i) =
            tile_even(*(const vector *)(from + 2 * i), *(const vector *)(from + 2 * i + VECTOR));
    for (; i < count; i++)
        to[i] = from[2 * i];
}

static inline size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}
