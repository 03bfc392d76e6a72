// Attention on tensor cores, with factors of 16 bits: as kernels_attention.cu, for heads of at most
// 64 words a row. A warp has 16 rows of q, and of a tile's scores all that belong to them, so a
// row's softmax is done by the four threads that share its scores (Dao, FlashAttention-2, 2023).
// Scores are in units of log 2.
#include "ports/cuda/kernels/kernel_short.h"

// The softmax of a thread's two rows so far: the largest score, and this thread's part of the sum
// relative to it.
struct short_online {
    float largest[2], sum[2];
};

// A tile's scores of a warp: for each step the products of two times 8 rows of k.
struct short_scores {
    float at[SHORT_STEPS][2][4];
};

// Returns the largest, and the sum, over the four threads that share a row.
DEVICE float quad_max(float value)
{
    value = fmaxf(value, warp_swap(value, 1));
    return fmaxf(value, warp_swap(value, 2));
}

DEVICE float quad_sum(float value)
{
    value += warp_swap(value, 1);
    return value + warp_swap(value, 2);
}

// Multiplies a tile's rows of k, while those of the next one come if `more`. Steps that do not
// count get the score of a mask.
DEVICE void score_tile(const struct cuda_args *a, const struct short_place *place,
                       struct short_tiles *t, struct short_scores *scores, const struct lefts *q,
                       const struct rows *k, uint32_t first, bool more, bool half)
{
    uint32_t now = first % (2 * SHORT_TILE), next = SHORT_TILE - now;

    UNROLL
    for (uint32_t i = 0; i < SHORT_STEPS; i++) {
        uint32_t row = i * SHORT_STEP;
        struct four four;

        if (more)
            four = fetch_step(place, k, first + SHORT_TILE + row);
        if (counts(&a->call.attention, place->first, first + row)) {
            dot_step(place, scores->at[i], q, &t->factor[(now + row) * SHORT_PITCH], half);
            scale_scores(&a->call.attention, a->in[3], place, scores->at[i], first + row, true);
        } else {
            UNROLL
            for (uint32_t j = 0; j < 8; j++)
                scores->at[i][j / 4][j % 4] = -INFINITY;
        }
        if (more)
            keep_step(place, t->factor, next + row, &four, half);
    }
}

// Adds the scores of row number `row`, 0 or 1, to its softmax, and replaces them by their shares.
DEVICE void share_row(struct short_online *o, struct short_scores *scores,
                      struct short_sums *result, uint32_t row)
{
    float largest = -INFINITY, base, shrink;

    UNROLL
    for (uint32_t i = 0; i < 4 * SHORT_STEPS; i++)
        largest = fmaxf(largest, scores->at[i / 4][i / 2 % 2][2 * row + i % 2]);
    largest = fmaxf(o->largest[row], quad_max(largest));
    base = largest == -INFINITY ? 0 : largest;
    shrink = power_of_two(o->largest[row] - base);
    o->largest[row] = largest;
    o->sum[row] *= shrink;
    UNROLL
    for (uint32_t i = 0; i < 4 * SHORT_STEPS; i++) {
        float *score = &scores->at[i / 4][i / 2 % 2][2 * row + i % 2];

        *score = power_of_two(*score - base);
        o->sum[row] += *score;
    }
    UNROLL
    for (uint32_t i = 0; i < 4 * SHORT_STEPS; i++)
        result->at[i / 2][2 * row + i % 2] *= shrink;
}

// Adds the shares times a tile's rows of v to the result, while those of the next one come.
DEVICE void add_tile(const struct cuda_args *a, const struct short_place *place,
                     struct short_tiles *t, const struct short_scores *shares,
                     struct short_sums *result, const struct rows *v, uint32_t first, bool more,
                     bool half)
{
    uint32_t now = first % (2 * SHORT_TILE), next = SHORT_TILE - now;

    UNROLL
    for (uint32_t i = 0; i < SHORT_STEPS; i++) {
        uint32_t row = i * SHORT_STEP;
        struct four four;

        if (more)
            four = fetch_step(place, v, first + SHORT_TILE + row);
        if (counts(&a->call.attention, place->first, first + row))
            add_step(place, result, shares->at[i], &t->value[(now + row) * SHORT_PITCH], half);
        if (more)
            keep_step(place, t->value, next + row, &four, half);
    }
}

// Writes the rows of y, and log(sum exp(score)) of each.
DEVICE void write_attended(const struct cuda_args *a, const struct head *head,
                           const struct short_place *place, const struct short_online *o,
                           const struct short_sums *result)
{
    const struct cn_attention *op = &a->call.attention;
    float *y = head_base(a->out[0], a->call.out[0].stride, &op->y, head);
    bool pairs = in_pairs(y, &op->y, (uint32_t)op->v_width);

    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = place->first + place_row(place, i);
        float sum = quad_sum(o->sum[i]);

        if (row >= op->q_rows)
            continue;
        write_short(place, y + row * op->y.row, result, i, 1 / sum, (uint32_t)op->v_width, pairs);
        if (a->out[1] && place->t == 0)
            a->out[1][head->n * a->call.out[1].stride + head->number * op->q_rows + row] =
                LN_2 * o->largest[i] + logf(sum);
    }
}

DEVICE void attend_head(const struct cuda_args *a, struct short_tiles *t, const struct head *head,
                        bool half)
{
    const struct cn_attention *op = &a->call.attention;
    struct rows q = rows_of(a, 0, head, &op->q, op->q_rows, op->width);
    struct rows k = rows_of(a, 1, head, &op->k, op->k_rows, op->width);
    struct rows v = rows_of(a, 2, head, &op->v, op->k_rows, op->v_width);
    struct short_online o = {{-INFINITY, -INFINITY}, {0, 0}};
    struct short_sums result = {{{0}}};
    struct short_place place = short_place_of(head);
    uint32_t end = k_end(op, head, SHORT_SIDE);
    struct lefts own;

    bring_short(&place, t->factor, &q, head->first, SHORT_SIDE, half);
    block_sync();
    own = load_lefts(&place, t->factor);
    block_sync();
    bring_short(&place, t->factor, &k, 0, SHORT_TILE, half);
    bring_short(&place, t->value, &v, 0, SHORT_TILE, half);
    block_sync();
    for (uint32_t first = 0; first < end; first += SHORT_TILE) {
        bool more = first + SHORT_TILE < end;
        struct short_scores scores;

        score_tile(a, &place, t, &scores, &own, &k, first, more, half);
        if (counts(op, place.first, first)) {
            share_row(&o, &scores, &result, 0);
            share_row(&o, &scores, &result, 1);
        }
        add_tile(a, &place, t, &scores, &result, &v, first, more, half);
        block_sync();
    }
    write_attended(a, head, &place, &o, &result);
}

DEVICE void attend_short(const struct cuda_args *a, struct short_tiles *t, bool half)
{
    const struct cn_attention *op = &a->call.attention;
    uint32_t rows = (uint32_t)op->q_rows;
    uint32_t blocks = head_blocks(rows, SHORT_SIDE) * (uint32_t)op->heads * a->samples;

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        struct head head = short_head(a, block, rows, op->causal);

        attend_head(a, t, &head, half);
    }
}

// y = softmax(scale q k' + mask) v. in: q, k, v, [mask]. out: y, [saved].
KERNEL_OF_TWO(attention_bfloat16)
{
    SHARED struct short_tiles tiles;

    attend_short(&a, &tiles, false);
}

KERNEL_OF_TWO(attention_float16)
{
    SHARED struct short_tiles tiles;

    attend_short(&a, &tiles, true);
}
