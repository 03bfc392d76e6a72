// kernel_tiles.h - products of tiles on float32 units, for attention.
//
// A tile is 64 x 64 numbers, on which a block of 256 threads works. Each thread owns 16 of them: 4
// rows and 4 columns. The matrices come through shared memory. A thread reads four neighbouring
// words at once, and uses each word four times, so arithmetic and not memory limits the speed.
#pragma once

#include "ports/cuda/kernels/kernel_heads.h"

#define TILE_SIDE 64   // rows, and columns, of a tile
#define TILE_ACROSS 16 // threads across a tile, and down
#define TILE_OWN 4     // rows, and columns, that a thread owns
#define TILE_DEPTH 32  // columns of both factors that are in shared memory at a time
#define TILE_CHUNKS 4  // tiles in the widest result: CN_ATTENTION_WIDTH_MAX words
#define DEPTH_PITCH 36 // words from row to row of a factor; spreads the rows over the banks
#define SCORE_PITCH 68 // words from row to row of a tile of scores; spreads them likewise
#define TILE_ROW(down, i) ((down) + TILE_ACROSS * (i)) // a thread's row number i

// The shared memory of a block.
struct tiles {
    // A part of each factor's rows; later, in the same place, a tile of values (64 x 64).
    ALIGNED(16) float factors[2 * TILE_SIDE * DEPTH_PITCH];
    ALIGNED(16) float scores[TILE_SIDE * SCORE_PITCH];
};

// The numbers of a result that a thread owns: rows as in a tile; columns 64 n + 4 across + j.
struct owned {
    float at[TILE_CHUNKS][TILE_OWN][TILE_OWN]; // [n][i][j]
};

// Returns the place of this thread in a tile.
DEVICE uint32_t tile_down(void)
{
    return thread_index() / TILE_ACROSS;
}

DEVICE uint32_t tile_across(void)
{
    return thread_index() % TILE_ACROSS;
}

// Brings rows first.. of m into shared memory: `depth` columns from column `from` on.
DEVICE void bring_rows(float *to, uint32_t pitch, const struct rows *m, uint32_t first,
                       uint32_t from, uint32_t depth)
{
    for (uint32_t i = thread_index(); i < TILE_SIDE * depth / 4; i += block_size()) {
        uint32_t row = i / (depth / 4), col = i % (depth / 4) * 4;

        store_four(&to[row * pitch + col], four_of(m, first + row, from + col));
    }
}

// Sets a tile of scores: dot[i][j] = row own_first + TILE_ROW(down, i) of own times row other_first
// + across + 16 j of other. The whole block must call this together.
DEVICE void tile_dot(struct tiles *t, float dot[TILE_OWN][TILE_OWN], const struct rows *own,
                     uint32_t own_first, const struct rows *other, uint32_t other_first)
{
    float *a = t->factors, *b = t->factors + TILE_SIDE * DEPTH_PITCH;

    UNROLL
    for (uint32_t i = 0; i < TILE_OWN * TILE_OWN; i++)
        dot[i / TILE_OWN][i % TILE_OWN] = 0;
    for (uint32_t from = 0; from < own->width; from += TILE_DEPTH) {
        uint32_t depth = own->width - from < TILE_DEPTH ? own->width - from : TILE_DEPTH;

        block_sync(); // an earlier tile may still be read
        bring_rows(a, DEPTH_PITCH, own, own_first, from, TILE_DEPTH);
        bring_rows(b, DEPTH_PITCH, other, other_first, from, TILE_DEPTH);
        block_sync();
        for (uint32_t c = 0; c < depth; c += 4) {
            struct four x[TILE_OWN], y[TILE_OWN];

            UNROLL
            for (uint32_t i = 0; i < TILE_OWN; i++) {
                x[i] = load_four(&a[TILE_ROW(tile_down(), i) * DEPTH_PITCH + c]);
                y[i] = load_four(&b[TILE_ROW(tile_across(), i) * DEPTH_PITCH + c]);
            }
            UNROLL
            for (uint32_t i = 0; i < 4 * TILE_OWN * TILE_OWN; i++)
                dot[i / TILE_OWN % TILE_OWN][i % TILE_OWN] +=
                    x[i / TILE_OWN % TILE_OWN].at[i / 16] * y[i % TILE_OWN].at[i / 16];
        }
    }
}

// Keeps a thread's scores in shared memory, for add_product. The scores of the tile before must
// have been used; tile_dot waits for that.
DEVICE void keep_scores(struct tiles *t, const float scores[TILE_OWN][TILE_OWN])
{
    UNROLL
    for (uint32_t i = 0; i < TILE_OWN; i++)
        UNROLL
    for (uint32_t j = 0; j < TILE_OWN; j++)
        t->scores[TILE_ROW(tile_down(), i) * SCORE_PITCH + TILE_ROW(tile_across(), j)] =
            scores[i][j];
}

// Adds to the result the kept scores times rows first.. of m. chunks is a constant: the tiles that
// a row of the result needs at most. The whole block must call this together.
DEVICE void add_product(struct tiles *t, struct owned *result, uint32_t chunks,
                        const struct rows *m, uint32_t first)
{
    float *values = t->factors;

    UNROLL
    for (uint32_t n = 0; n < chunks; n++) {
        if (n * TILE_SIDE >= m->width)
            continue;
        block_sync(); // the factors may still be read
        bring_rows(values, TILE_SIDE, m, first, n * TILE_SIDE, TILE_SIDE);
        block_sync();
        for (uint32_t k = 0; k < TILE_SIDE; k += 4) {
            struct four score[TILE_OWN], value[4];

            UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                score[i] = load_four(&t->scores[TILE_ROW(tile_down(), i) * SCORE_PITCH + k]);
                value[i] = load_four(&values[(k + i) * TILE_SIDE + 4 * tile_across()]);
            }
            UNROLL
            for (uint32_t i = 0; i < 4 * TILE_OWN * TILE_OWN; i++)
                result->at[n][i / TILE_OWN % TILE_OWN][i % TILE_OWN] +=
                    score[i / TILE_OWN % TILE_OWN].at[i / 16] * value[i / 16].at[i % TILE_OWN];
        }
    }
}

// Writes row number i of the thread's result, times factor, to a row of `width` words.
DEVICE void write_owned(float *row, const struct owned *result, uint32_t chunks, uint32_t i,
                        float factor, uint32_t width)
{
    UNROLL
    for (uint32_t n = 0; n < chunks; n++)
        UNROLL
    for (uint32_t j = 0; j < TILE_OWN; j++) {
        uint32_t c = n * TILE_SIDE + 4 * tile_across() + j;

        if (c < width)
            row[c] = result->at[n][i][j] * factor;
    }
}

// Returns the sum over the 16 threads that share a tile's rows, in each of them; likewise row_max.
DEVICE float row_sum(float value)
{
    UNROLL
    for (uint32_t mask = TILE_ACROSS / 2; mask; mask /= 2)
        value += warp_swap(value, mask);
    return value;
}

DEVICE float row_max(float value)
{
    UNROLL
    for (uint32_t mask = TILE_ACROSS / 2; mask; mask /= 2)
        value = fmaxf(value, warp_swap(value, mask));
    return value;
}
