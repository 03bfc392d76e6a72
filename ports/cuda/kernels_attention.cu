// Attention without the matrix of scores. A warp owns a row of the result and goes through the rows
// of the other side, 32 at a time, one in each lane. Scores are kept relative to the largest so far
// (Milakov and Gimelshein, 2018; Dao et al., 2022). saved holds log(sum exp(score)) of each q row.
#include "ports/cuda/kernel_common.h"

#define CHUNK 32      // columns of a tile in shared memory
#define OWN 8         // words of a result row that a lane keeps: width <= 256
#define TILE_PITCH 33 // words from row to row of a tile; avoids bank conflicts

// A matrix of one head. Row r begins r * leading words after base.
struct rows {
    const float *base;
    uint32_t count, width;
    size_t leading;
};

// Returns the product of own[0..width) and this lane's row of m, which is row first + lane. The
// whole block must call this together, because it brings m into shared memory chunk by chunk. own
// is NULL for a warp without a row.
DEVICE float tile_dot(const float *own, const struct rows *m, uint32_t first)
{
    SHARED float tile[CUDA_WARP * TILE_PITCH];
    uint32_t lane = thread_index() % CUDA_WARP;
    float sum = 0;

    for (uint32_t from = 0; from < m->width; from += CHUNK) {
        uint32_t width = m->width - from < CHUNK ? m->width - from : CHUNK;

        block_sync();
        for (uint32_t i = thread_index(); i < CUDA_WARP * CHUNK; i += block_size()) {
            uint32_t row = first + i / CHUNK, col = i % CHUNK;
            bool inside = row < m->count && col < width;

            tile[i / CHUNK * TILE_PITCH + col] =
                inside ? m->base[row * m->leading + from + col] : 0;
        }
        block_sync();
        for (uint32_t c = 0; own && c < width; c++)
            sum += own[from + c] * tile[lane * TILE_PITCH + c];
    }
    return sum;
}

// Adds to the warp's result the sum over lanes of share * row (first + lane) of m.
DEVICE void add_rows(float result[OWN], float share, const struct rows *m, uint32_t first)
{
    uint32_t lane = thread_index() % CUDA_WARP;

    for (uint32_t j = 0; j < CUDA_WARP; j++) {
        float weight = warp_read(share, j);

        if (first + j >= m->count || weight == 0)
            continue;
        for (uint32_t i = 0, c = lane; i < OWN && c < m->width; i++, c += CUDA_WARP)
            result[i] += weight * m->base[(first + j) * m->leading + c];
    }
}

// Writes the warp's result, times factor, to a row.
DEVICE void write_row(float *row, const float result[OWN], float factor, uint32_t width)
{
    for (uint32_t i = 0, c = thread_index() % CUDA_WARP; i < OWN && c < width; i++, c += CUDA_WARP)
        row[c] = result[i] * factor;
}

// A head of a sample and the row of it that this warp works on. A block takes CUDA_THREADS / 32
// rows of one head.
struct head {
    uint32_t n, number, row, last; // sample, head, this warp's row; last row of the block
    bool active;                   // the row exists
};

// Returns the number of blocks for the rows of one head.
DEVICE uint32_t head_blocks(uint32_t rows)
{
    uint32_t warps = block_size() / CUDA_WARP;

    return (rows + warps - 1) / warps;
}

DEVICE struct head head_of(const struct cn_attention *op, uint32_t block, uint32_t rows)
{
    uint32_t warps = block_size() / CUDA_WARP, blocks = head_blocks(rows);
    struct head head;

    head.number = block / blocks % (uint32_t)op->heads;
    head.n = block / blocks / (uint32_t)op->heads;
    head.row = block % blocks * warps + thread_index() / CUDA_WARP;
    head.last = block % blocks * warps + warps - 1;
    head.active = head.row < rows;
    return head;
}

// Returns the first word of a head's matrix in an operand.
DEVICE float *head_base(float *operand, size_t stride, const struct cn_heads *heads,
                        const struct head *head)
{
    return operand + head->n * stride + heads->offset + head->number * heads->head;
}

DEVICE struct rows rows_of(const struct cuda_args *a, int in, const struct head *head,
                           const struct cn_heads *heads, size_t count, size_t width)
{
    struct rows m;

    m.base = head_base(a->in[in], a->call.in[in].stride, heads, head);
    m.count = (uint32_t)count;
    m.width = (uint32_t)width;
    m.leading = heads->row;
    return m;
}

// Returns the warp's row of a matrix, or NULL if it has none.
DEVICE const float *own_row(const struct rows *m, const struct head *head)
{
    return head->active ? m->base + head->row * m->leading : 0;
}

// Returns the score of q row q and k row k; -INFINITY where it is masked or beyond the end.
DEVICE float masked_score(const struct cn_attention *op, const float *mask, float dot, uint32_t q,
                          uint32_t k)
{
    float score = dot * op->scale;

    if (k >= op->k_rows || q >= op->q_rows || (op->causal && k > q))
        return -INFINITY;
    return mask ? score + mask[(size_t)q * op->k_rows + k] : score;
}

// Returns the end of the rows of k that the block needs.
DEVICE uint32_t k_end(const struct cn_attention *op, const struct head *head)
{
    uint32_t end = (uint32_t)op->k_rows;

    return op->causal && head->last + 1 < end ? head->last + 1 : end;
}

// A softmax sum that grows: the largest score so far, and the sum relative to it.
struct online {
    float largest, sum;
};

// Adds a tile's scores to the sum. Returns this lane's share; *shrink is the factor for earlier
// shares.
DEVICE float online_add(struct online *o, float score, float *shrink)
{
    float largest = fmaxf(o->largest, warp_max(score));
    float base = largest == -INFINITY ? 0 : largest;
    float share = expf(score - base);

    *shrink = expf(o->largest - base);
    o->sum = o->sum * *shrink + warp_sum(share);
    o->largest = largest;
    return share;
}

// y = softmax(scale q k' + mask) v. in: q, k, v, [mask]. out: y, [saved].
KERNEL(attention)
{
    const struct cn_attention *op = &a.call.attention;
    uint32_t rows = (uint32_t)op->q_rows;
    uint32_t blocks = head_blocks(rows) * (uint32_t)op->heads * a.samples;

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        struct head head = head_of(op, block, rows);
        struct rows q = rows_of(&a, 0, &head, &op->q, op->q_rows, op->width);
        struct rows k = rows_of(&a, 1, &head, &op->k, op->k_rows, op->width);
        struct rows v = rows_of(&a, 2, &head, &op->v, op->k_rows, op->v_width);
        const float *own = own_row(&q, &head);
        float result[OWN] = {0}, shrink;
        struct online o = {-INFINITY, 0};

        for (uint32_t first = 0; first < k_end(op, &head); first += CUDA_WARP) {
            float dot = tile_dot(own, &k, first);
            float score =
                masked_score(op, a.in[3], dot, head.row, first + thread_index() % CUDA_WARP);
            float share = online_add(&o, score, &shrink);

            for (uint32_t i = 0; i < OWN; i++)
                result[i] *= shrink;
            add_rows(result, share, &v, first);
        }
        if (!head.active)
            continue;
        write_row(head_base(a.out[0], a.call.out[0].stride, &op->y, &head) + head.row * op->y.row,
                  result, 1 / o.sum, v.width);
        if (a.out[1] && thread_index() % CUDA_WARP == 0)
            a.out[1][head.n * a.call.out[1].stride + head.number * rows + head.row] =
                o.largest + logf(o.sum);
    }
}

// The matrices of a head that both gradient kernels read. in: dy, q, k, v, y, saved, [mask].
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

// dq = scale * sum over k rows of the gradient of the score * k. Also writes d of each q row to the
// workspace, for attention_grad_key.
KERNEL(attention_grad_query)
{
    const struct cn_attention *op = &a.call.attention;
    uint32_t rows = (uint32_t)op->q_rows, lane = thread_index() % CUDA_WARP;
    uint32_t blocks = head_blocks(rows) * (uint32_t)op->heads * a.samples;

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        struct head head = head_of(op, block, rows);
        struct grad_sides s = grad_sides_of(&a, &head);
        struct rows y = rows_of(&a, 4, &head, &op->y, op->q_rows, op->v_width);
        const float *own_q = own_row(&s.q, &head), *own_dy = own_row(&s.dy, &head);
        const float *own_y = own_row(&y, &head);
        float result[OWN] = {0}, d = 0, logarithm = 0;

        for (uint32_t c = lane; head.active && c < y.width; c += CUDA_WARP)
            d += own_dy[c] * own_y[c];
        d = warp_sum(d);
        if (head.active) {
            uint32_t number = head.number * rows + head.row;

            logarithm = a.in[5][head.n * a.call.in[5].stride + number];
            if (lane == 0)
                a.workspace[(size_t)head.n * op->heads * rows + number] = d;
        }
        for (uint32_t first = 0; first < k_end(op, &head); first += CUDA_WARP) {
            float dot = tile_dot(own_q, &s.k, first), dy_v = tile_dot(own_dy, &s.v, first);
            float score = masked_score(op, a.in[6], dot, head.row, first + lane);

            add_rows(result, score_grad(expf(score - logarithm), dy_v, d), &s.k, first);
        }
        if (head.active)
            write_row(head_base(a.out[0], a.call.out[0].stride, &op->q, &head) +
                          head.row * op->q.row,
                      result, op->scale, s.q.width);
    }
}

// dk = scale * sum over q rows of the gradient of the score * q; dv = sum over q rows of p * dy.
KERNEL(attention_grad_key)
{
    const struct cn_attention *op = &a.call.attention;
    uint32_t rows = (uint32_t)op->k_rows, lane = thread_index() % CUDA_WARP;
    uint32_t blocks = head_blocks(rows) * (uint32_t)op->heads * a.samples;

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        struct head head = head_of(op, block, rows);
        struct grad_sides s = grad_sides_of(&a, &head);
        const float *own_k = own_row(&s.k, &head), *own_v = own_row(&s.v, &head);
        size_t numbers = ((size_t)head.n * op->heads + head.number) * op->q_rows;
        const float *logarithm =
            a.in[5] + head.n * a.call.in[5].stride + (size_t)head.number * op->q_rows;
        float of_k[OWN] = {0}, of_v[OWN] = {0};

        for (uint32_t first = 0; first < op->q_rows; first += CUDA_WARP) {
            uint32_t row = first + lane;
            float dot = tile_dot(own_k, &s.q, first), dy_v = tile_dot(own_v, &s.dy, first);
            float score = masked_score(op, a.in[6], dot, row, head.row);
            bool inside = head.active && row < op->q_rows;
            float share = inside ? expf(score - logarithm[row]) : 0;

            add_rows(of_v, share, &s.dy, first);
            add_rows(of_k, inside ? score_grad(share, dy_v, a.workspace[numbers + row]) : 0, &s.q,
                     first);
        }
        if (!head.active)
            continue;
        write_row(head_base(a.out[1], a.call.out[1].stride, &op->k, &head) + head.row * op->k.row,
                  of_k, op->scale, s.k.width);
        write_row(head_base(a.out[2], a.call.out[2].stride, &op->v, &head) + head.row * op->v.row,
                  of_v, 1, s.v.width);
    }
}
