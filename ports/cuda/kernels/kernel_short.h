// kernel_short.h - tiles of 16-bit numbers, for attention on tensor cores.
//
// A block of 256 threads owns 128 rows of a head, 16 for each warp, and goes through the rows of
// the other side, 64 at a time. Both sides have two matrices: the factor of the scores (q or k) and
// the value (v or dy). The tiles of the other side lie in shared memory, rounded to 16 bits. While
// a tile is used, the next one comes, a step of 16 rows at a time, so the block waits once a tile.
//
// A row has 64 words at most; a shorter one is filled up with zeros. SHORT_PITCH spreads eight rows
// over all banks.
#pragma once

#include "ports/cuda/kernels/kernel_heads.h"
#include "ports/cuda/kernels/kernel_mma.h"

#define SHORT_SIDE CUDA_SHORT_ROWS // rows that a block owns: 16 for each warp
#define SHORT_TILE 64              // rows of a tile
#define SHORT_STEP 16  // rows of a step, rows of a warp, and columns of an MMA's left factor
#define SHORT_STEPS 4  // steps of a tile, and of the longest row
#define SHORT_PITCH 36 // words from row to row of a tile; a word has two numbers
#define LOG2_E 1.4426950408889634f
// A score that a finite mask hides, in units of log 2: far below others, and with bits left for a
// sum of such scores.
#define HIDDEN (-65536.0f)
#define LN_2 0.6931471805599453f

// Two tiles of each matrix, used by turns. Also holds the 128 rows that a block owns, at first.
struct short_tiles {
    ALIGNED(16) uint32_t factor[2 * SHORT_TILE * SHORT_PITCH];
    ALIGNED(16) uint32_t value[2 * SHORT_TILE * SHORT_PITCH];
};

// The matrices of one side of a head.
struct side {
    struct rows factor, value;
};

// 16 rows of a matrix, as left factors of MMAs.
struct lefts {
    uint32_t at[SHORT_STEPS][4];
};

// A result of a warp: 16 rows of 64 columns, as sums of MMAs.
struct short_sums {
    float at[2 * SHORT_STEPS][4];
};

// Numbers on their way from global to shared memory: four of one of a step's rows.
struct fetched {
    struct four factor, value;
};

// The place of the present thread. g and t are those of kernel_mma.h.
struct short_place {
    uint32_t g, t;
    uint32_t first; // first row of this warp
    uint32_t row;   // of a step, from which this thread fetches
    uint32_t col;   // first of the four that this thread fetches
    uint32_t down;  // word of a tile, for load_matrices of left factors and of transposed ones
    uint32_t along; // the same, for right factors that are not transposed
};

DEVICE struct short_place short_place_of(const struct head *head)
{
    uint32_t lane = thread_index() % CUDA_WARP;
    struct short_place place;

    place.g = lane / 4;
    place.t = lane % 4;
    place.first = head->first + thread_index() / CUDA_WARP * SHORT_STEP;
    place.row = thread_index() / SHORT_STEP;
    place.col = thread_index() % SHORT_STEP * 4;
    place.down = lane % 16 * SHORT_PITCH + lane / 16 * 4;
    place.along = (lane / 16 * 8 + lane % 8) * SHORT_PITCH + lane / 8 % 2 * 4;
    return place;
}

// Returns the head and the rows of a block. Blocks with most work begin first: with a causal mask
// the last rows of q, and the first ones of k.
DEVICE struct head short_head(const struct cuda_args *a, uint32_t block, uint32_t rows,
                              bool last_first)
{
    uint32_t heads = (uint32_t)a->call.attention.heads, tile = block / (heads * a->samples);
    struct head head;

    head.number = block % heads;
    head.n = block / heads % a->samples;
    head.first = (last_first ? head_blocks(rows, SHORT_SIDE) - 1 - tile : tile) * SHORT_SIDE;
    return head;
}

// Fetches this thread's words of a step whose rows begin at `row`.
DEVICE struct four fetch_step(const struct short_place *place, const struct rows *m, uint32_t row)
{
    return four_of(m, row + place->row, place->col);
}

// Rounds them and stores them to rows `row`.. of a tile.
DEVICE void keep_step(const struct short_place *place, uint32_t *tile, uint32_t row,
                      const struct four *four, bool half)
{
    struct two_words two;

    two.at[0] = round_two(four->at[0], four->at[1], half);
    two.at[1] = round_two(four->at[2], four->at[3], half);
    store_two_words(&tile[(row + place->row) * SHORT_PITCH + place->col / 2], two);
}

// Brings count rows of m, from row `first` on, to shared memory.
DEVICE void bring_short(const struct short_place *place, uint32_t *tile, const struct rows *m,
                        uint32_t first, uint32_t count, bool half)
{
    UNROLL
    for (uint32_t i = 0; i < count; i += SHORT_STEP) {
        struct four four = fetch_step(place, m, first + i);

        keep_step(place, tile, i, &four, half);
    }
}

// Loads this warp's rows from the 128 rows of a block in shared memory.
DEVICE struct lefts load_lefts(const struct short_place *place, const uint32_t *rows)
{
    const uint32_t *own = rows + thread_index() / CUDA_WARP * SHORT_STEP * SHORT_PITCH;
    struct lefts lefts;

    UNROLL
    for (uint32_t i = 0; i < SHORT_STEPS; i++)
        load_matrices(lefts.at[i], own + place->down + i * SHORT_STEP / 2, false);
    return lefts;
}

// Sets two products side by side: this warp's rows times 16 rows of a tile.
DEVICE void dot_step(const struct short_place *place, float sums[2][4], const struct lefts *lefts,
                     const uint32_t *rows, bool half)
{
    UNROLL
    for (uint32_t i = 0; i < 8; i++)
        sums[i / 4][i % 4] = 0;
    UNROLL
    for (uint32_t i = 0; i < SHORT_STEPS; i++) {
        uint32_t rights[4];

        load_matrices(rights, rows + place->along + i * SHORT_STEP / 2, false);
        add_mma(sums[0], lefts->at[i], &rights[0], half);
        add_mma(sums[1], lefts->at[i], &rights[2], half);
    }
}

// Adds to the result two products side by side, as left factor, times 16 rows of a tile.
DEVICE void add_step(const struct short_place *place, struct short_sums *result,
                     const float left[2][4], const uint32_t *rows, bool half)
{
    uint32_t rounded[4];

    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        rounded[i] = round_two(left[i / 2][i % 2 * 2], left[i / 2][i % 2 * 2 + 1], half);
    UNROLL
    for (uint32_t i = 0; i < SHORT_STEPS; i++) {
        uint32_t rights[4];

        load_matrices(rights, rows + place->down + i * SHORT_STEP / 2, true);
        add_mma(result->at[2 * i], rounded, &rights[0], half);
        add_mma(result->at[2 * i + 1], rounded, &rights[2], half);
    }
}

// Returns whether a score of 16 rows of q and 16 rows of k counts.
DEVICE bool counts(const struct cn_attention *op, uint32_t q, uint32_t k)
{
    return q < op->q_rows && k < op->k_rows && !(op->causal && k > q + SHORT_STEP - 1);
}

// Returns whether all of them count, and without a mask.
DEVICE bool counts_fully(const struct cn_attention *op, const float *mask, uint32_t q, uint32_t k)
{
    return !mask && q + SHORT_STEP <= op->q_rows && k + SHORT_STEP <= op->k_rows &&
           !(op->causal && k + SHORT_STEP - 1 > q);
}

// Returns a score, in units of log 2, with its mask; -INFINITY where it does not count.
DEVICE float hide_score(const struct cn_attention *op, const float *mask, float score, uint32_t q,
                        uint32_t k)
{
    float value;

    if (k >= op->k_rows || q >= op->q_rows || (op->causal && k > q))
        return -INFINITY;
    if (!mask)
        return score;
    value = mask[(size_t)q * op->k_rows + k];
    if (value == -INFINITY)
        return value;
    return LOG2_E * value < HIDDEN ? HIDDEN : score + LOG2_E * value;
}

// Returns row number i, 0 or 1, of the two that a thread has of 16, counted from the first of them.
DEVICE uint32_t place_row(const struct short_place *place, uint32_t i)
{
    return place->g + 8 * i;
}

// Returns the column of sum i in the product number n of two side by side.
DEVICE uint32_t place_col(const struct short_place *place, uint32_t n, uint32_t i)
{
    return 8 * n + 2 * place->t + i % 2;
}

// Turns two products side by side into scores, in units of log 2. The columns' rows begin at
// `other`. own_q: the rows are q, the columns k; else the other way round.
DEVICE void scale_scores(const struct cn_attention *op, const float *mask,
                         const struct short_place *place, float dot[2][4], uint32_t other,
                         bool own_q)
{
    uint32_t q = own_q ? place->first : other, k = own_q ? other : place->first;

    UNROLL
    for (uint32_t i = 0; i < 8; i++)
        dot[i / 4][i % 4] *= op->scale * LOG2_E;
    if (counts_fully(op, mask, q, k))
        return;
    UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t row = place_row(place, i % 4 / 2), col = place_col(place, i / 4, i);

        dot[i / 4][i % 4] = hide_score(op, mask, dot[i / 4][i % 4], q + (own_q ? row : col),
                                       k + (own_q ? col : row));
    }
}

// Writes this thread's row number i, 0 or 1, of the result to a row of `width` words. pairs: two
// words at an even place are aligned to 8 bytes.
DEVICE void write_short(const struct short_place *place, float *row,
                        const struct short_sums *result, uint32_t i, float factor, uint32_t width,
                        bool pairs)
{
    UNROLL
    for (uint32_t n = 0; n < 2 * SHORT_STEPS; n++) {
        uint32_t c = place_col(place, n, 0);
        struct two two;

        two.at[0] = result->at[n][2 * i] * factor;
        two.at[1] = result->at[n][2 * i + 1] * factor;
        if (pairs && c < width) {
            store_two(row + c, two);
            continue;
        }
        if (c < width)
            row[c] = two.at[0];
        if (c + 1 < width)
            row[c + 1] = two.at[1];
    }
}

DEVICE bool in_pairs(const float *base, const struct cn_heads *heads, uint32_t width)
{
    return ((uintptr_t)base % 8 | heads->row % 2 | width % 2) == 0;
}
