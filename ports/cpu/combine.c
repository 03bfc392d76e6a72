// Arithmetic that broadcasts, and its gradients: sums over the elements that an operand repeats.
//
// The dimensions are walked in rows along the last one, so a row's kernel mostly sees strides of 0
// or 1.
#include <math.h>
#include <string.h>

#include "ports/cpu/kernel.h"
#include "ports/cpu/sums.h"

#define CHUNK 256 // elements of a row in the temporary buffer of a gradient

// The start of the current row. index counts the rows; the offsets follow it by their strides.
struct walk {
    size_t index[CN_COMBINE_RANK_MAX];
    size_t a, b, condition;
};

// Steps to the next row.
static void walk_next(struct walk *walk, const struct cn_combine *op)
{
    for (size_t d = op->rank - 1; d-- > 0;) {
        walk->a += op->a[d];
        walk->b += op->b[d];
        walk->condition += op->condition[d];
        if (++walk->index[d] < op->dims[d])
            return;
        walk->a -= op->a[d] * op->dims[d];
        walk->b -= op->b[d] * op->dims[d];
        walk->condition -= op->condition[d] * op->dims[d];
        walk->index[d] = 0;
    }
}

static size_t row_count(const struct cn_combine *op)
{
    size_t count = 1;

    for (size_t d = 0; d + 1 < op->rank; d++)
        count *= op->dims[d];
    return count;
}

// Computes one row of an operation; x and y are the operands' elements.
#define ROW(expression)                                                                            \
    do {                                                                                           \
        if (a_step == 1 && b_step == 1)                                                            \
            for (size_t i = 0; i < count; i++) {                                                   \
                const float x = a[i], y = b[i];                                                    \
                c[i] = expression;                                                                 \
            }                                                                                      \
        else if (a_step == 1 && b_step == 0)                                                       \
            for (size_t i = 0; i < count; i++) {                                                   \
                const float x = a[i], y = b[0];                                                    \
                c[i] = expression;                                                                 \
            }                                                                                      \
        else                                                                                       \
            for (size_t i = 0; i < count; i++) {                                                   \
                const float x = a[i * a_step], y = b[i * b_step];                                  \
                c[i] = expression;                                                                 \
            }                                                                                      \
    } while (0)

// Computes one row of c. The comparisons are written so that a NaN stays a NaN.
static void combine_row(enum cn_combine_kind kind, size_t count, const float *a, size_t a_step,
                        const float *b, size_t b_step, float *c)
{
    switch (kind) {
    case CN_COMBINE_ADD:
        ROW(x + y);
        break;
    case CN_COMBINE_SUB:
        ROW(x - y);
        break;
    case CN_COMBINE_MUL:
        ROW(x * y);
        break;
    case CN_COMBINE_DIV:
        ROW(x / y);
        break;
    case CN_COMBINE_MIN:
        ROW(x <= y || isnan(x) ? x : y);
        break;
    case CN_COMBINE_MAX:
        ROW(x >= y || isnan(x) ? x : y);
        break;
    case CN_COMBINE_POWER:
        ROW(powf(x, y));
        break;
    case CN_COMBINE_PRELU:
        ROW(x > 0 ? x : x * y);
        break;
    case CN_COMBINE_EQUAL:
        ROW(x == y ? 1.0f : 0.0f);
        break;
    case CN_COMBINE_LESS:
        ROW(x < y ? 1.0f : 0.0f);
        break;
    case CN_COMBINE_LESS_EQUAL:
        ROW(x <= y ? 1.0f : 0.0f);
        break;
    case CN_COMBINE_AND:
        ROW(x != 0 && y != 0 ? 1.0f : 0.0f);
        break;
    case CN_COMBINE_OR:
        ROW(x != 0 || y != 0 ? 1.0f : 0.0f);
        break;
    }
}

void cpu_combine(const struct cpu_task *task)
{
    const struct cn_combine *op = &task->call->combine;
    size_t rows = row_count(op), cols = op->dims[op->rank - 1];
    size_t a_step = op->a[op->rank - 1], b_step = op->b[op->rank - 1];

    for (size_t n = 0; n < task->samples; n++) {
        const float *a = task->in[0] + n * task->call->in[0].stride;
        const float *b = task->in[1] + n * task->call->in[1].stride;
        float *c = task->out[0] + n * task->call->out[0].stride;
        struct walk walk = {0};

        for (size_t r = 0; r < rows; r++, walk_next(&walk, op), c += cols)
            combine_row(op->kind, cols, a + walk.a, a_step, b + walk.b, b_step, c);
    }
}

void cpu_where(const struct cpu_task *task)
{
    const struct cn_combine *op = &task->call->combine;
    size_t rows = row_count(op), cols = op->dims[op->rank - 1];
    size_t a_step = op->a[op->rank - 1], b_step = op->b[op->rank - 1];
    size_t step = op->condition[op->rank - 1];

    for (size_t n = 0; n < task->samples; n++) {
        float *c = task->out[0] + n * task->call->out[0].stride;
        struct walk walk = {0};

        for (size_t r = 0; r < rows; r++, walk_next(&walk, op), c += cols) {
            const float *a = task->in[0] + n * task->call->in[0].stride + walk.a;
            const float *b = task->in[1] + n * task->call->in[1].stride + walk.b;
            const float *condition = task->in[2] + n * task->call->in[2].stride + walk.condition;

            for (size_t i = 0; i < cols; i++)
                c[i] = condition[i * step] != 0 ? a[i * a_step] : b[i * b_step];
        }
    }
}

// Returns the derivative of x op y by x (side 0) or y (side 1). Where two operands are equal, each
// gets half of the gradient of their minimum or maximum.
static float slope(enum cn_combine_kind kind, int side, float x, float y)
{
    switch (kind) {
    case CN_COMBINE_SUB:
        return side ? -1 : 1;
    case CN_COMBINE_MUL:
        return side ? x : y;
    case CN_COMBINE_DIV:
        return side ? -x / (y * y) : 1 / y;
    case CN_COMBINE_MIN:
    case CN_COMBINE_MAX:
        if (x == y)
            return 0.5f;
        return (kind == CN_COMBINE_MAX) == (side == 0 ? x > y : y > x) ? 1 : 0;
    case CN_COMBINE_POWER:
        if (side)
            return x == 0 && y >= 0 ? 0 : powf(x, y) * logf(x);
        return y == 0 ? 0 : y * powf(x, y - 1);
    case CN_COMBINE_PRELU:
        if (side)
            return x > 0 ? 0 : x;
        return x > 0 ? 1 : y;
    default:
        return 1;
    }
}

// The operands of one row of the gradient; an operand that is left out is NULL.
struct grad_row {
    const struct cn_combine *op;
    const float *dc, *a, *b, *condition;
    size_t a_step, b_step, condition_step;
};

// Returns elements [first, first + count) of dc times the derivative; count is at most CHUNK. The
// result is in aside, or dc itself where the derivative is 1.
static const float *grad_chunk(const struct grad_row *row, size_t first, size_t count, float *aside)
{
    const float *dc = row->dc + first;
    const float *a = row->a ? row->a + first * row->a_step : NULL;
    const float *b = row->b ? row->b + first * row->b_step : NULL;
    const float *condition = row->condition + first * row->condition_step;
    const enum cn_combine_kind kind = row->op->kind;
    const int side = row->op->side;

    if (row->op->where)
        for (size_t i = 0; i < count; i++)
            aside[i] = (condition[i * row->condition_step] != 0) == (side == 0) ? dc[i] : 0;
    else if (kind == CN_COMBINE_MUL && side == 0)
        combine_row(CN_COMBINE_MUL, count, dc, 1, b, row->b_step, aside);
    else if (kind == CN_COMBINE_MUL)
        combine_row(CN_COMBINE_MUL, count, dc, 1, a, row->a_step, aside);
    else if (kind == CN_COMBINE_DIV && side == 0)
        combine_row(CN_COMBINE_DIV, count, dc, 1, b, row->b_step, aside);
    else if (kind == CN_COMBINE_SUB && side == 1)
        for (size_t i = 0; i < count; i++)
            aside[i] = -dc[i];
    else if (a && b)
        for (size_t i = 0; i < count; i++)
            aside[i] = dc[i] * slope(kind, side, a[i * row->a_step], b[i * row->b_step]);
    else
        return dc;
    return aside;
}

// Adds a row of the gradient to its operand; step 0: the operand repeats along the row.
static void add_grad_row(const struct grad_row *row, size_t cols, float *to, size_t step)
{
    const float scale = row->op->scale;
    float aside[CHUNK];

    for (size_t first = 0; first < cols; first += CHUNK) {
        size_t count = cols - first < CHUNK ? cols - first : CHUNK;
        const float *values = grad_chunk(row, first, count, aside);

        if (!step)
            *to += scale * row_sum(values, count);
        else
            for (size_t i = 0; i < count; i++)
                to[(first + i) * step] += scale * values[i];
    }
}

// Returns the words of the operand that the gradient is for: of one sample, or of all if they share
// it.
static size_t gradient_words(const struct cn_combine *op)
{
    const size_t *strides = op->side ? op->b : op->a;
    size_t last = 0;

    for (size_t d = 0; d < op->rank; d++)
        last += strides[d] * (op->dims[d] - 1);
    return last + 1;
}

void cpu_combine_grad(const struct cpu_task *task)
{
    const struct cn_combine *op = &task->call->combine;
    size_t rows = row_count(op), cols = op->dims[op->rank - 1];
    size_t stride = task->call->out[0].stride, last = op->rank - 1;
    const float *a = op->where ? NULL : task->in[1], *b = task->in[2];
    struct grad_row row = {.op = op,
                           .a_step = op->a[last],
                           .b_step = op->b[last],
                           .condition_step = op->condition[last]};

    if (!task->add)
        memset(task->out[0], 0,
               (stride ? stride * task->samples : gradient_words(op)) * sizeof(float));
    for (size_t n = 0; n < task->samples; n++) {
        struct walk walk = {0};

        row.dc = task->in[0] + n * task->call->in[0].stride;
        for (size_t r = 0; r < rows; r++, walk_next(&walk, op), row.dc += cols) {
            row.a = a ? a + n * task->call->in[1].stride + walk.a : NULL;
            row.b = b ? b + n * task->call->in[2].stride + walk.b : NULL;
            row.condition =
                op->where ? task->in[1] + n * task->call->in[1].stride + walk.condition : NULL;
            add_grad_row(&row, cols, task->out[0] + n * stride + (op->side ? walk.b : walk.a),
                         op->side ? op->b[last] : op->a[last]);
        }
    }
}
