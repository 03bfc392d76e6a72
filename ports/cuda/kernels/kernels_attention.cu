// Attention without the matrix of scores. A block owns 64 rows of a head's result and goes through
// the rows of the other side, 64 at a time. Scores are kept relative to the largest so far (Milakov
// and Gimelshein, 2018; Dao et al., 2022). saved holds log(sum exp(score)) of each q row.
#include "ports/cuda/kernels/kernel_tiles.h"

// A softmax sum that grows: the largest score of a row so far, and this thread's part of the sum
// relative to it.
struct online {
    float largest, sum;
};

// Adds a thread's scores of a row to the sum, and replaces them by their shares. Returns the factor
// for earlier shares.
DEVICE float online_add(struct online *o, float scores[TILE_OWN])
{
    float largest = scores[0], base, shrink;

    UNROLL
    for (uint32_t j = 1; j < TILE_OWN; j++)
        largest = fmaxf(largest, scores[j]);
    largest = fmaxf(o->largest, row_max(largest));
    base = largest == -INFINITY ? 0 : largest;
    shrink = expf(o->largest - base);
    o->sum *= shrink;
    UNROLL
    for (uint32_t j = 0; j < TILE_OWN; j++) {
        scores[j] = expf(scores[j] - base);
        o->sum += scores[j];
    }
    o->largest = largest;
    return shrink;
}

// Turns a tile of products, of the q rows from head->first on and the k rows from `first` on, into
// shares, and shrinks the result so far.
DEVICE void softmax_tile(const struct cuda_args *a, const struct head *head, uint32_t first,
                         float dot[TILE_OWN][TILE_OWN], struct online o[TILE_OWN],
                         struct owned *result, uint32_t chunks)
{
    UNROLL
    for (uint32_t i = 0; i < TILE_OWN; i++) {
        uint32_t q = head->first + TILE_ROW(tile_down(), i);
        float shrink;

        UNROLL
        for (uint32_t j = 0; j < TILE_OWN; j++)
            dot[i][j] = masked_score(&a->call.attention, a->in[3], dot[i][j], q,
                                     first + TILE_ROW(tile_across(), j));
        shrink = online_add(&o[i], dot[i]);
        UNROLL
        for (uint32_t n = 0; n < chunks; n++)
            UNROLL
        for (uint32_t j = 0; j < TILE_OWN; j++)
            result->at[n][i][j] *= shrink;
    }
}

// Writes the rows of y, and log(sum exp(score)) of each.
DEVICE void write_rows(const struct cuda_args *a, const struct head *head,
                       const struct online o[TILE_OWN], const struct owned *result, uint32_t chunks)
{
    const struct cn_attention *op = &a->call.attention;
    float *y = head_base(a->out[0], a->call.out[0].stride, &op->y, head);

    UNROLL
    for (uint32_t i = 0; i < TILE_OWN; i++) {
        uint32_t row = head->first + TILE_ROW(tile_down(), i);
        float sum = row_sum(o[i].sum);

        if (row >= op->q_rows)
            continue;
        write_owned(y + row * op->y.row, result, chunks, i, 1 / sum, (uint32_t)op->v_width);
        if (a->out[1] && tile_across() == 0)
            a->out[1][head->n * a->call.out[1].stride + head->number * op->q_rows + row] =
                o[i].largest + logf(sum);
    }
}

DEVICE void attend(const struct cuda_args *a, struct tiles *t, uint32_t chunks)
{
    const struct cn_attention *op = &a->call.attention;
    uint32_t rows = (uint32_t)op->q_rows;
    uint32_t blocks = head_blocks(rows, TILE_SIDE) * (uint32_t)op->heads * a->samples;

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        struct head head = head_of(op, block, rows, TILE_SIDE, op->causal);
        struct rows q = rows_of(a, 0, &head, &op->q, op->q_rows, op->width);
        struct rows k = rows_of(a, 1, &head, &op->k, op->k_rows, op->width);
        struct rows v = rows_of(a, 2, &head, &op->v, op->k_rows, op->v_width);
        struct owned result = {{{{0}}}};
        struct online o[TILE_OWN];

        UNROLL
        for (uint32_t i = 0; i < TILE_OWN; i++) {
            o[i].largest = -INFINITY;
            o[i].sum = 0;
        }
        for (uint32_t first = 0; first < k_end(op, &head, TILE_SIDE); first += TILE_SIDE) {
            float scores[TILE_OWN][TILE_OWN];

            tile_dot(t, scores, &q, head.first, &k, first);
            softmax_tile(a, &head, first, scores, o, &result, chunks);
            keep_scores(t, scores);
            add_product(t, &result, chunks, &v, first);
        }
        write_rows(a, &head, o, &result, chunks);
    }
}

// y = softmax(scale q k' + mask) v. in: q, k, v, [mask]. out: y, [saved]. For heads of at most 64
// words a row, whose results take fewer registers; attention_wide is for the others.
KERNEL(attention)
{
    SHARED struct tiles tiles;

    attend(&a, &tiles, 1);
}

KERNEL(attention_wide)
{
    SHARED struct tiles tiles;

    attend(&a, &tiles, TILE_CHUNKS);
}
