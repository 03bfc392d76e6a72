// The gradient of attention. The scores are computed again from q, k and saved, a tile at a time. A
// block owns 64 rows of dq, another 64 rows of dk and dv, so no two blocks add to one word.
#include "ports/cuda/kernels/kernel_tiles.h"

// The matrices of a head that both kernels read. in: dy, q, k, v, y, saved, [mask].
struct grad_sides {
    struct rows q, k, v, dy;
};

DEVICE struct grad_sides grad_sides_of(const struct cuda_args *a, const struct head *head)
{
    const struct cn_attention *op = &a->call.attention;
    struct grad_sides s;

    s.dy = rows_of(a, 0, head, &op->y, op->q_rows, op->v_width);
    s.q = rows_of(a, 1, head, &op->q, op->q_rows, op->width);
    s.k = rows_of(a, 2, head, &op->k, op->k_rows, op->width);
    s.v = rows_of(a, 3, head, &op->v, op->k_rows, op->v_width);
    return s;
}

// Returns the gradient of the score of a q row and a k row: p (dy v' - d), with d = dy y' of the q
// row.
DEVICE float score_grad(float share, float dy_v, float d)
{
    return share * (dy_v - d);
}

// What the gradient needs of a q row.
struct q_row {
    float logarithm, d; // log(sum exp(score)); dy y'
};

// Finds these for a thread's rows. Also writes each d to the workspace, for attention_grad_key.
DEVICE void find_rows(const struct cuda_args *a, const struct head *head,
                      struct q_row found[TILE_OWN])
{
    const struct cn_attention *op = &a->call.attention;
    struct rows dy = rows_of(a, 0, head, &op->y, op->q_rows, op->v_width);
    struct rows y = rows_of(a, 4, head, &op->y, op->q_rows, op->v_width);
    size_t numbers = ((size_t)head->n * op->heads + head->number) * op->q_rows;

    UNROLL
    for (uint32_t i = 0; i < TILE_OWN; i++) {
        uint32_t row = head->first + TILE_ROW(tile_down(), i);
        bool inside = row < op->q_rows;
        float d = 0;

        for (uint32_t c = tile_across(); inside && c < y.width; c += TILE_ACROSS)
            d += dy.base[row * dy.leading + c] * y.base[row * y.leading + c];
        found[i].d = row_sum(d);
        found[i].logarithm =
            inside ? a->in[5][head->n * a->call.in[5].stride + head->number * op->q_rows + row] : 0;
        if (inside && tile_across() == 0)
            a->workspace[numbers + row] = found[i].d;
    }
}

DEVICE void write_grad(const struct cuda_args *a, int out, const struct cn_heads *heads,
                       const struct head *head, const struct owned *result, uint32_t chunks,
                       float factor, const struct rows *like)
{
    float *base = head_base(a->out[out], a->call.out[out].stride, heads, head);

    UNROLL
    for (uint32_t i = 0; i < TILE_OWN; i++) {
        uint32_t row = head->first + TILE_ROW(tile_down(), i);

        if (row < like->count)
            write_owned(base + row * heads->row, result, chunks, i, factor, like->width);
    }
}

DEVICE void grad_query(const struct cuda_args *a, struct tiles *t, uint32_t chunks)
{
    const struct cn_attention *op = &a->call.attention;
    uint32_t rows = (uint32_t)op->q_rows;
    uint32_t blocks = head_blocks(rows, TILE_SIDE) * (uint32_t)op->heads * a->samples;

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        struct head head = head_of(op, block, rows, TILE_SIDE, op->causal);
        struct grad_sides s = grad_sides_of(a, &head);
        struct owned result = {{{{0}}}};
        struct q_row of_row[TILE_OWN];

        find_rows(a, &head, of_row);
        for (uint32_t first = 0; first < k_end(op, &head, TILE_SIDE); first += TILE_SIDE) {
            float scores[TILE_OWN][TILE_OWN], dy_v[TILE_OWN][TILE_OWN];

            tile_dot(t, scores, &s.q, head.first, &s.k, first);
            tile_dot(t, dy_v, &s.dy, head.first, &s.v, first);
            UNROLL
            for (uint32_t i = 0; i < TILE_OWN; i++)
                UNROLL
            for (uint32_t j = 0; j < TILE_OWN; j++) {
                float score =
                    masked_score(op, a->in[6], scores[i][j], head.first + TILE_ROW(tile_down(), i),
                                 first + TILE_ROW(tile_across(), j));

                scores[i][j] =
                    score_grad(expf(score - of_row[i].logarithm), dy_v[i][j], of_row[i].d);
            }
            keep_scores(t, scores);
            add_product(t, &result, chunks, &s.k, first);
        }
        write_grad(a, 0, &op->q, &head, &result, chunks, op->scale, &s.q);
    }
}

// dq = scale * sum over k rows of the gradient of the score * k.
KERNEL(attention_grad_query)
{
    SHARED struct tiles tiles;

    grad_query(&a, &tiles, 1);
}

KERNEL(attention_grad_query_wide)
{
    SHARED struct tiles tiles;

    grad_query(&a, &tiles, TILE_CHUNKS);
}

DEVICE void grad_key(const struct cuda_args *a, struct tiles *t, uint32_t chunks)
{
    const struct cn_attention *op = &a->call.attention;
    uint32_t rows = (uint32_t)op->k_rows;
    uint32_t blocks = head_blocks(rows, TILE_SIDE) * (uint32_t)op->heads * a->samples;

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        struct head head = head_of(op, block, rows, TILE_SIDE, false);
        struct grad_sides s = grad_sides_of(a, &head);
        const float *logarithm =
            a->in[5] + head.n * a->call.in[5].stride + (size_t)head.number * op->q_rows;
        const float *d = a->workspace + ((size_t)head.n * op->heads + head.number) * op->q_rows;
        struct owned of_k = {{{{0}}}}, of_v = {{{{0}}}};

        // A causal mask hides a row of k from the rows of q before it.
        for (uint32_t first = op->causal ? head.first : 0; first < op->q_rows; first += TILE_SIDE) {
            float shares[TILE_OWN][TILE_OWN], slopes[TILE_OWN][TILE_OWN];

            tile_dot(t, shares, &s.k, head.first, &s.q, first);
            tile_dot(t, slopes, &s.v, head.first, &s.dy, first);
            UNROLL
            for (uint32_t j = 0; j < TILE_OWN; j++) {
                uint32_t row = first + TILE_ROW(tile_across(), j);
                bool inside = row < op->q_rows;
                float of_row = inside ? logarithm[row] : 0, d_of_row = inside ? d[row] : 0;

                UNROLL
                for (uint32_t i = 0; i < TILE_OWN; i++) {
                    float score = masked_score(op, a->in[6], shares[i][j], row,
                                               head.first + TILE_ROW(tile_down(), i));

                    shares[i][j] = expf(score - of_row);
                    slopes[i][j] = score_grad(shares[i][j], slopes[i][j], d_of_row);
                }
            }
            keep_scores(t, shares);
            add_product(t, &of_v, chunks, &s.dy, first);
            block_sync(); // the shares were used
            keep_scores(t, slopes);
            add_product(t, &of_k, chunks, &s.q, first);
        }
        write_grad(a, 1, &op->k, &head, &of_k, chunks, op->scale, &s.k);
        write_grad(a, 2, &op->v, &head, &of_v, chunks, 1, &s.v);
    }
}

// dk = scale * sum over q rows of the gradient of the score * q; dv = sum over q rows of p * dy.
KERNEL(attention_grad_key)
{
    SHARED struct tiles tiles;

    grad_key(&a, &tiles, 1);
}

KERNEL(attention_grad_key_wide)
{
    SHARED struct tiles tiles;

    grad_key(&a, &tiles, TILE_CHUNKS);
}
