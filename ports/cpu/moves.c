// Moving words: strided copies, fills, gathers.
#include <string.h>

#include "ports/cpu/kernel.h"

// Copies a row of count words. A scale of 1 leaves every bit as it is, so integers can be copied
// too.
static void copy_row(const struct cn_copy *op, bool add, const float *x, float *y)
{
    const uint32_t last = op->rank - 1;
    const ptrdiff_t x_step = op->x[last], y_step = op->y[last];
    const ptrdiff_t count = (ptrdiff_t)op->dims[last];

    if (add)
        for (ptrdiff_t i = 0; i < count; i++)
            y[i * y_step] += op->scale * x[i * x_step];
    else if (op->scale != 1)
        for (ptrdiff_t i = 0; i < count; i++)
            y[i * y_step] = op->scale * x[i * x_step];
    else if (x_step == 1 && y_step == 1)
        memcpy(y, x, (size_t)count * sizeof(*y));
    else
        for (ptrdiff_t i = 0; i < count; i++)
            y[i * y_step] = x[i * x_step];
}

static void copy_sample(const struct cn_copy *op, bool add, const float *x, float *y)
{
    size_t index[CN_COMBINE_RANK_MAX] = {0};
    size_t rows = 1;

    for (uint32_t d = 0; d + 1 < op->rank; d++)
        rows *= op->dims[d];
    for (size_t r = 0; r < rows; r++) {
        copy_row(op, add, x, y);
        for (uint32_t d = op->rank - 1; d-- > 0;) {
            x += op->x[d];
            y += op->y[d];
            if (++index[d] < op->dims[d])
                break;
            x -= op->x[d] * (ptrdiff_t)op->dims[d];
            y -= op->y[d] * (ptrdiff_t)op->dims[d];
            index[d] = 0;
        }
    }
}

void cpu_copy(const struct cpu_task *task)
{
    const struct cn_copy *op = &task->call->copy;

    for (size_t n = 0; n < task->samples; n++)
        copy_sample(op, task->add || (n && !task->call->out[0].stride),
                    task->in[0] + n * task->call->in[0].stride + op->x_offset,
                    task->out[0] + n * task->call->out[0].stride + op->y_offset);
}

void cpu_fill(const struct cpu_task *task)
{
    const struct cn_fill *op = &task->call->fill;
    size_t count = op->count * task->samples;

    for (size_t i = 0; i < count; i++)
        task->out[0][i] = task->add ? task->out[0][i] + op->value : op->value;
}

// Returns the row that index names; a negative index counts from the end. If there is no such row,
// sets CN_ERANGE and returns 0.
static size_t row_of(const struct cpu_task *task, const float *index, size_t rows)
{
    int32_t row;

    memcpy(&row, index, sizeof(row));
    if (row >= 0 ? (size_t)row >= rows : (size_t)(-(int64_t)row) > rows) {
        *task->err = CN_ERANGE;
        return 0;
    }
    return row < 0 ? rows - (size_t)(-(int64_t)row) : (size_t)row;
}

static void gather_sample(const struct cpu_task *task, const float *x, const float *index, float *y)
{
    const struct cn_gather *op = &task->call->gather;

    for (size_t o = 0; o < op->outer; o++, x += op->rows * op->inner)
        for (size_t n = 0; n < op->count; n++, y += op->inner) {
            if (!op->elements) {
                memcpy(y, x + row_of(task, index + n, op->rows) * op->inner,
                       op->inner * sizeof(*y));
                continue;
            }
            for (size_t i = 0; i < op->inner; i++)
                y[i] = x[row_of(task, index + (o * op->count + n) * op->inner + i, op->rows) *
                             op->inner +
                         i];
        }
}

void cpu_gather(const struct cpu_task *task)
{
    for (size_t n = 0; n < task->samples; n++)
        gather_sample(task, task->in[0] + n * task->call->in[0].stride,
                      task->in[1] + n * task->call->in[1].stride,
                      task->out[0] + n * task->call->out[0].stride);
}

static void gather_grad_sample(const struct cpu_task *task, const float *dy, const float *index,
                               float *dx)
{
    const struct cn_gather *op = &task->call->gather;

    for (size_t o = 0; o < op->outer; o++, dx += op->rows * op->inner)
        for (size_t n = 0; n < op->count; n++, dy += op->inner) {
            float *row = op->elements ? dx : dx + row_of(task, index + n, op->rows) * op->inner;

            for (size_t i = 0; i < op->inner; i++) {
                size_t at = op->elements ? row_of(task, index + (o * op->count + n) * op->inner + i,
                                                  op->rows) *
                                               op->inner
                                         : 0;

                row[at + i] += dy[i];
            }
        }
}

void cpu_gather_grad(const struct cpu_task *task)
{
    const struct cn_gather *op = &task->call->gather;
    size_t stride = task->call->out[0].stride;
    size_t words = stride ? stride * task->samples : op->outer * op->rows * op->inner;

    if (!task->add)
        memset(task->out[0], 0, words * sizeof(float));
    for (size_t n = 0; n < task->samples; n++)
        gather_grad_sample(task, task->in[0] + n * task->call->in[0].stride,
                           task->in[1] + n * task->call->in[1].stride, task->out[0] + n * stride);
}
