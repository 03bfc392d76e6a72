// Attention, a block of rows of q at a time. Only the scores of one block are in memory, never all
// of them.
#include <math.h>
#include <string.h>

#include "ports/cpu/curves.h"
#include "ports/cpu/gemm.h"
#include "ports/cpu/sums.h"

// Words; both blocks of the gradient then stay in the second-level cache.
#define BLOCK_SCORES (16 * 1024)
#define BLOCK_ROWS (12 * TILE_ROWS)
#define CAUSAL_ROWS (4 * TILE_ROWS) // fewer rows, so that more of the masked part is skipped

// One call on one lane: the layout of its workspace.
struct attention {
    const struct cn_attention *op;
    const float *mask;
    size_t pitch;           // words of a row of scores: k_rows rounded up to whole vectors
    size_t block;           // rows of q at a time
    float *keys, *values;   // k' (width x pitch) and v' (v_width x pitch) of a head
    float *scores, *slopes; // block x pitch each: scores, and their gradients
    float *sums;            // for each row of the block, its sum of exponentials
    float *gemm;            // workspace of cpu_gemm
};

// Lays out the workspace and returns its size in words. Only the gradient has values and slopes.
static size_t lay_out(const struct cn_attention *op, bool gradient, float *workspace,
                      struct attention *a)
{
    size_t widest = most(op->width, op->v_width), height, largest;

    *a = (struct attention){.op = op, .pitch = round_up(op->k_rows, VECTOR)};
    height = least(op->causal ? CAUSAL_ROWS : BLOCK_ROWS, BLOCK_SCORES / a->pitch);
    a->block = least(most(height / TILE_ROWS, 1) * TILE_ROWS, op->q_rows);
    largest = most(most(a->pitch, widest), a->block);
    a->keys = workspace;
    a->values = a->keys + op->width * a->pitch;
    a->scores = a->values + (gradient ? op->v_width * a->pitch : 0);
    a->slopes = a->scores + a->block * a->pitch;
    a->sums = a->slopes + (gradient ? a->block * a->pitch : 0);
    a->gemm = a->sums + round_up(a->block, VECTOR);
    return (size_t)(a->gemm - workspace) + cpu_gemm_workspace(largest, largest, largest);
}

// Returns the rows of a head from row first on.
static struct cpu_matrix rows_of(const float *sample, const struct cn_heads *heads, size_t head,
                                 size_t first)
{
    return cpu_matrix_of(sample + heads->offset + head * heads->head + first * heads->row,
                         heads->row, 1);
}

static struct cpu_matrix transpose_of(struct cpu_matrix m)
{
    return (struct cpu_matrix){m.data, m.col, m.row};
}

// Transposes a head's matrix, padded with zeros to whole vectors, so that products with it write
// whole vectors.
static void transpose_rows(const struct attention *a, struct cpu_matrix from, size_t width,
                           float *to)
{
    size_t rows = a->op->k_rows;

    tile_transpose(to, a->pitch, from.data, from.row, rows, width);
    for (size_t j = 0; j < width; j++)
        memset(to + j * a->pitch + rows, 0, (a->pitch - rows) * sizeof(*to));
}

static void multiply(const struct attention *a, struct cpu_matrix left, struct cpu_matrix right,
                     struct cpu_matrix to, const size_t size[3], bool add)
{
    const struct cpu_product product = {.rows = size[0],
                                        .inner = size[1],
                                        .cols = size[2],
                                        .a = left,
                                        .b = right,
                                        .c = to,
                                        .alpha = 1,
                                        .add = add};

    cpu_gemm(&product, a->gemm);
}

// Returns the number of columns that row i of q sees.
static size_t columns_of(const struct cn_attention *op, size_t i)
{
    return op->causal ? least(i + 1, op->k_rows) : op->k_rows;
}

// Computes scores = left times the transposed matrix, for the first `end` columns rounded up to
// whole vectors.
static void find_scores(const struct attention *a, struct cpu_matrix left, size_t width,
                        const float *transposed, size_t rows, size_t end, float *scores)
{
    multiply(a, left, cpu_matrix_of(transposed, a->pitch, 1), cpu_matrix_of(scores, a->pitch, 1),
             (const size_t[]){rows, width, round_up(end, VECTOR)}, false);
}

// Computes scores = scale * scores + mask for row i of q. Returns the largest.
static float finish_scores(const struct attention *a, size_t i, float *scores)
{
    const float *mask = a->mask ? a->mask + i * a->op->k_rows : NULL;
    const float scale = a->op->scale;
    size_t count = columns_of(a->op, i), j = 0;
    vector top = (vector){0} - INFINITY;
    float largest = -INFINITY;

    for (; j < count; j += VECTOR) { // values beyond count are junk
        vector score = scale * *(const vector *)(scores + j);

        if (mask)
            score += *(const vector *)(mask + j);
        *(vector *)(scores + j) = score;
    }
    for (j = 0; j + VECTOR <= count; j += VECTOR) {
        vector score = *(const vector *)(scores + j);

        top = curve_choose(score > top, score, top);
    }
    for (; j < count; j++)
        largest = scores[j] > largest ? scores[j] : largest;
    for (j = 0; j < VECTOR; j++)
        largest = top[j] > largest ? top[j] : largest;
    return largest;
}

// Computes exp(score - base), and 0 where that is too small for curve_exp. Clears scores [count,
// end).
static void exp_scores(float *scores, float base, size_t count, size_t end)
{
    for (size_t j = 0; j < count; j += VECTOR) {
        vector d = *(const vector *)(scores + j) - base;

        *(vector *)(scores + j) = curve_choose(d < -87.0f, (vector){0}, curve_exp(d));
    }
    for (size_t j = count; j < end; j++)
        scores[j] = 0;
}

static void scale_row(float *row, float factor, size_t count)
{
    for (size_t c = 0; c < count; c++)
        row[c] *= factor;
}

// Computes rows [first, first + block) of the output: y = softmax(scores) v. Saves the logarithm of
// each row's sum of exponentials for the gradient.
static void attend_block(const struct attention *a, const struct cpu_task *task, size_t n,
                         size_t head, size_t first)
{
    const struct cn_attention *op = a->op;
    const struct cn_operand *in = task->call->in;
    size_t rows = least(a->block, op->q_rows - first), end = columns_of(op, first + rows - 1);
    float *saved = task->out[1] + n * task->call->out[1].stride + head * op->q_rows + first;
    struct cpu_matrix y =
        rows_of(task->out[0] + n * task->call->out[0].stride, &op->y, head, first);

    find_scores(a, rows_of(task->in[0] + n * in[0].stride, &op->q, head, first), op->width, a->keys,
                rows, end, a->scores);
    for (size_t i = 0; i < rows; i++) {
        float *row = a->scores + i * a->pitch;
        float largest = finish_scores(a, first + i, row);

        exp_scores(row, largest, columns_of(op, first + i), end);
        a->sums[i] = row_sum(row, end);
        saved[i] = largest + logf(a->sums[i]);
    }
    multiply(a, cpu_matrix_of(a->scores, a->pitch, 1),
             rows_of(task->in[2] + n * in[2].stride, &op->v, head, 0), y,
             (const size_t[]){rows, end, op->v_width}, false);
    for (size_t i = 0; i < rows; i++)
        scale_row(y.data + i * y.row, 1 / a->sums[i], op->v_width);
}

void cpu_attention(const struct cpu_task *task)
{
    const struct cn_attention *op = &task->call->attention;
    struct attention a;

    lay_out(op, false, task->workspace, &a);
    a.mask = task->in[3];
    for (size_t n = 0; n < task->samples; n++)
        for (size_t head = 0; head < op->heads; head++) {
            const float *k = task->in[1] + n * task->call->in[1].stride;

            transpose_rows(&a, rows_of(k, &op->k, head, 0), op->width, a.keys);
            for (size_t first = 0; first < op->q_rows; first += a.block)
                attend_block(&a, task, n, head, first);
        }
}

size_t cpu_attention_workspace(const struct cn_call *call, size_t samples)
{
    struct attention a;

    (void)samples;
    return lay_out(&call->attention, false, NULL, &a);
}

// The operands of one head of one sample, for the gradient.
struct grad_head {
    struct cpu_matrix dy, q, k, v, y, dq, dk, dv;
    const float *saved;
};

static struct grad_head grad_head_of(const struct cpu_task *task, size_t n, size_t head)
{
    const struct cn_attention *op = &task->call->attention;
    const struct cn_operand *in = task->call->in, *out = task->call->out;

    return (struct grad_head){
        .dy = rows_of(task->in[0] + n * in[0].stride, &op->y, head, 0),
        .q = rows_of(task->in[1] + n * in[1].stride, &op->q, head, 0),
        .k = rows_of(task->in[2] + n * in[2].stride, &op->k, head, 0),
        .v = rows_of(task->in[3] + n * in[3].stride, &op->v, head, 0),
        .y = rows_of(task->in[4] + n * in[4].stride, &op->y, head, 0),
        .saved = task->in[5] + n * in[5].stride + head * op->q_rows,
        .dq = rows_of(task->out[0] + n * out[0].stride, &op->q, head, 0),
        .dk = rows_of(task->out[1] + n * out[1].stride, &op->k, head, 0),
        .dv = rows_of(task->out[2] + n * out[2].stride, &op->v, head, 0),
    };
}

// Computes the gradient of q k' from slopes = dy v': p (dy v' - dy y') scale, where shares is p and
// product is dy y'.
static void find_slopes(const struct attention *a, const float *shares, float product, size_t count,
                        size_t end, float *slopes)
{
    const float scale = a->op->scale;

    for (size_t j = 0; j < count; j++)
        slopes[j] = shares[j] * (slopes[j] - product) * scale;
    for (size_t j = count; j < end; j++)
        slopes[j] = 0;
}

// Adds the gradients of rows [first, first + block) of q to dk and dv, and writes those rows of dq.
static void grad_block(const struct attention *a, const struct grad_head *head, size_t first)
{
    const struct cn_attention *op = a->op;
    size_t rows = least(a->block, op->q_rows - first), end = columns_of(op, first + rows - 1);
    struct cpu_matrix q = head->q, dy = head->dy, dq = head->dq;
    struct cpu_matrix shares = cpu_matrix_of(a->scores, a->pitch, 1);
    struct cpu_matrix slopes = cpu_matrix_of(a->slopes, a->pitch, 1);

    q.data += first * q.row;
    dy.data += first * dy.row;
    dq.data += first * dq.row;
    find_scores(a, q, op->width, a->keys, rows, end, a->scores);
    find_scores(a, dy, op->v_width, a->values, rows, end, a->slopes);
    for (size_t i = 0; i < rows; i++) {
        size_t count = columns_of(op, first + i);
        float *row = a->scores + i * a->pitch;

        finish_scores(a, first + i, row);
        exp_scores(row, head->saved[first + i], count, end);
        find_slopes(
            a, row,
            row_dot(dy.data + i * dy.row, head->y.data + (first + i) * head->y.row, op->v_width),
            count, end, a->slopes + i * a->pitch);
    }
    multiply(a, transpose_of(shares), dy, head->dv, (const size_t[]){end, rows, op->v_width}, true);
    multiply(a, transpose_of(slopes), q, head->dk, (const size_t[]){end, rows, op->width}, true);
    multiply(a, slopes, head->k, dq, (const size_t[]){rows, end, op->width}, false);
}

static void clear_rows(struct cpu_matrix m, size_t rows, size_t width)
{
    for (size_t i = 0; i < rows; i++)
        memset(m.data + i * m.row, 0, width * sizeof(*m.data));
}

void cpu_attention_grad(const struct cpu_task *task)
{
    const struct cn_attention *op = &task->call->attention;
    struct attention a;

    lay_out(op, true, task->workspace, &a);
    a.mask = task->in[6];
    for (size_t n = 0; n < task->samples; n++)
        for (size_t h = 0; h < op->heads; h++) {
            struct grad_head head = grad_head_of(task, n, h);

            transpose_rows(&a, head.k, op->width, a.keys);
            transpose_rows(&a, head.v, op->v_width, a.values);
            clear_rows(head.dk, op->k_rows, op->width);
            clear_rows(head.dv, op->k_rows, op->v_width);
            for (size_t first = 0; first < op->q_rows; first += a.block)
                grad_block(&a, &head, first);
        }
}

size_t cpu_attention_grad_workspace(const struct cn_call *call, size_t samples)
{
    struct attention a;

    (void)samples;
    return lay_out(&call->attention, true, NULL, &a);
}
