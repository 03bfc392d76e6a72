// Operations on rows: softmax, and normalization by a row's own mean and variance.
#include <math.h>
#include <string.h>

#include "ports/cpu/curves.h"
#include "ports/cpu/kernel.h"
#include "ports/cpu/sums.h"

// Returns sum a (x - mean).
static float dot_centred(const float *a, const float *x, float mean, size_t count)
{
    float part[8] = {0};
    float sum = 0;
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        for (size_t j = 0; j < 8; j++)
            part[j] += a[i + j] * (x[i + j] - mean);
    for (; i < count; i++)
        sum += a[i] * (x[i] - mean);
    for (size_t j = 0; j < 8; j++)
        sum += part[j];
    return sum;
}

// Computes y = exp(x - largest), and 0 where that is too small for curve_exp: masked elements must
// be exactly 0.
static void exp_row(const float *x, float largest, size_t count, float *y)
{
    const float least = -87;
    float rest[VECTOR] = {0};
    size_t i = 0;

    for (; i + VECTOR <= count; i += VECTOR) {
        vector d = *(const vector *)(x + i) - largest;

        *(vector *)(y + i) = curve_choose(d < least, (vector){0}, curve_exp(d));
    }
    for (size_t j = 0; i + j < count; j++)
        rest[j] = x[i + j] - largest;
    *(vector *)rest =
        curve_choose(*(vector *)rest < least, (vector){0}, curve_exp(*(vector *)rest));
    memcpy(y + i, rest, (count - i) * sizeof(*y));
}

// Computes a row of softmax. Its elements lie inner words apart.
static void softmax_row(const struct cn_softmax *op, const float *x, float *y)
{
    const size_t inner = op->inner;
    float largest = x[0], sum = 0;

    for (size_t c = 1; c < op->cols; c++)
        largest = x[c * inner] > largest ? x[c * inner] : largest;
    // A row of -inf only has no softmax: the result is NaN, as in other programs.
    if (inner == 1) {
        exp_row(x, largest, op->cols, y);
        sum = row_sum(y, op->cols);
    } else {
        for (size_t c = 0; c < op->cols; c++) {
            y[c * inner] = expf(x[c * inner] - largest);
            sum += y[c * inner];
        }
    }
    if (op->log)
        for (size_t c = 0; c < op->cols; c++)
            y[c * inner] = x[c * inner] - largest - logf(sum);
    else
        for (size_t c = 0; c < op->cols; c++)
            y[c * inner] /= sum;
}

void cpu_softmax(const struct cpu_task *task)
{
    const struct cn_softmax *op = &task->call->softmax;

    for (size_t o = 0; o < op->outer * task->samples; o++)
        for (size_t i = 0; i < op->inner; i++)
            softmax_row(op, task->in[0] + o * op->cols * op->inner + i,
                        task->out[0] + o * op->cols * op->inner + i);
}

// Computes dx = y (dy - sum dy y) for softmax, dx = dy - exp(y) sum dy for its logarithm.
static void softmax_grad_row(const struct cn_softmax *op, const float *dy, const float *y,
                             float *dx)
{
    const size_t inner = op->inner;
    float sum = 0;

    if (inner == 1)
        sum = op->log ? row_sum(dy, op->cols) : row_dot(dy, y, op->cols);
    else
        for (size_t c = 0; c < op->cols; c++)
            sum += op->log ? dy[c * inner] : dy[c * inner] * y[c * inner];
    if (op->log)
        for (size_t c = 0; c < op->cols; c++)
            dx[c * inner] = dy[c * inner] - expf(y[c * inner]) * sum;
    else
        for (size_t c = 0; c < op->cols; c++)
            dx[c * inner] = y[c * inner] * (dy[c * inner] - sum);
}

void cpu_softmax_grad(const struct cpu_task *task)
{
    const struct cn_softmax *op = &task->call->softmax;

    for (size_t o = 0; o < op->outer * task->samples; o++)
        for (size_t i = 0; i < op->inner; i++) {
            size_t at = o * op->cols * op->inner + i;

            softmax_grad_row(op, task->in[0] + at, task->in[1] + at, task->out[0] + at);
        }
}

// Returns where gamma and beta of a row begin.
static size_t affine_of(const struct cn_norm *op, size_t row)
{
    return row % op->groups * (op->cols / op->inner);
}

// Computes y = (x - mean) / deviation * gamma + beta. Saves the mean and 1 / deviation.
static void norm_row(const struct cn_norm *op, const float *x, const float *gamma,
                     const float *beta, float *y, float *saved)
{
    const float mean = row_sum(x, op->cols) / (float)op->cols;
    float variance, scale;

    for (size_t c = 0; c < op->cols; c++)
        y[c] = x[c] - mean;
    variance = row_dot(y, y, op->cols) / (float)op->cols;
    scale = 1 / sqrtf(variance + op->epsilon);
    saved[0] = mean;
    saved[1] = scale;
    if (op->inner == 1)
        for (size_t c = 0; c < op->cols; c++)
            y[c] = y[c] * scale * (gamma ? gamma[c] : 1) + (beta ? beta[c] : 0);
    else
        for (size_t k = 0; k < op->cols / op->inner; k++)
            for (size_t c = k * op->inner; c < (k + 1) * op->inner; c++)
                y[c] = y[c] * scale * (gamma ? gamma[k] : 1) + (beta ? beta[k] : 0);
}

void cpu_norm(const struct cpu_task *task)
{
    const struct cn_norm *op = &task->call->norm;

    for (size_t r = 0; r < op->rows * task->samples; r++) {
        size_t affine = affine_of(op, r % op->rows);

        norm_row(op, task->in[0] + r * op->cols, task->in[1] ? task->in[1] + affine : NULL,
                 task->in[2] ? task->in[2] + affine : NULL, task->out[0] + r * op->cols,
                 task->out[1] + 2 * r);
    }
}

// Computes dx = scale (g - mean of g - n * mean of g n), with g = dy * gamma and n = (x - mean) *
// scale.
static void norm_grad_row(const struct cn_norm *op, const float *dy, const float *x,
                          const float *saved, const float *gamma, float *dx)
{
    const float mean = saved[0], scale = saved[1], share = 1 / (float)op->cols;
    float first, second;

    if (!gamma)
        memcpy(dx, dy, op->cols * sizeof(*dx));
    else if (op->inner == 1)
        for (size_t c = 0; c < op->cols; c++)
            dx[c] = dy[c] * gamma[c];
    else
        for (size_t c = 0; c < op->cols; c++)
            dx[c] = dy[c] * gamma[c / op->inner];
    first = row_sum(dx, op->cols) * share;
    second = dot_centred(dx, x, mean, op->cols) * share * scale;
    for (size_t c = 0; c < op->cols; c++)
        dx[c] = scale * (dx[c] - first - (x[c] - mean) * scale * second);
}

void cpu_norm_grad(const struct cpu_task *task)
{
    const struct cn_norm *op = &task->call->norm;

    for (size_t r = 0; r < op->rows * task->samples; r++)
        norm_grad_row(op, task->in[0] + r * op->cols, task->in[1] + r * op->cols,
                      task->in[2] + 2 * r,
                      task->in[3] ? task->in[3] + affine_of(op, r % op->rows) : NULL,
                      task->out[0] + r * op->cols);
}

// Adds to dgamma = sum dy n and to dbeta = sum dy. Either may be NULL.
static void norm_grad_affine_row(const struct cn_norm *op, const float *dy, const float *x,
                                 const float *saved, float *dgamma, float *dbeta)
{
    const float mean = saved[0], scale = saved[1];

    if (op->inner == 1) {
        for (size_t c = 0; dgamma && c < op->cols; c++)
            dgamma[c] += dy[c] * (x[c] - mean) * scale;
        for (size_t c = 0; dbeta && c < op->cols; c++)
            dbeta[c] += dy[c];
        return;
    }
    for (size_t k = 0; k < op->cols / op->inner; k++) {
        const float *from = dy + k * op->inner;

        if (dgamma)
            dgamma[k] += dot_centred(from, x + k * op->inner, mean, op->inner) * scale;
        if (dbeta)
            dbeta[k] += row_sum(from, op->inner);
    }
}

void cpu_norm_grad_affine(const struct cpu_task *task)
{
    const struct cn_norm *op = &task->call->norm;
    size_t words = op->groups * (op->cols / op->inner);

    for (int i = 0; !task->add && i < 2; i++)
        if (task->out[i])
            memset(task->out[i], 0, words * sizeof(float));
    for (size_t r = 0; r < op->rows * task->samples; r++) {
        size_t affine = affine_of(op, r % op->rows);

        norm_grad_affine_row(op, task->in[0] + r * op->cols, task->in[1] + r * op->cols,
                             task->in[2] + 2 * r, task->out[0] ? task->out[0] + affine : NULL,
                             task->out[1] ? task->out[1] + affine : NULL);
    }
}
