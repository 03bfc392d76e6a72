// Maps, broadcasting arithmetic and the sums that are their gradients.
#include <math.h>
#include <string.h>

#include "ports/cpu/kernel.h"

void cpu_map(const struct cpu_task *task)
{
    const struct cn_map *op = &task->call->map;
    size_t count = op->count * task->samples;
    const float *x = task->in[0];
    float *y = task->out[0];

    // Comparisons are such that a NaN stays a NaN.
    switch (op->kind) {
    case CN_MAP_RELU:
        for (size_t i = 0; i < count; i++)
            y[i] = x[i] < 0 ? 0 : x[i];
        break;
    case CN_MAP_LEAKY_RELU:
        for (size_t i = 0; i < count; i++)
            y[i] = x[i] < 0 ? op->alpha * x[i] : x[i];
        break;
    case CN_MAP_SIGMOID:
        for (size_t i = 0; i < count; i++)
            y[i] = 1 / (1 + expf(-x[i]));
        break;
    case CN_MAP_TANH:
        for (size_t i = 0; i < count; i++)
            y[i] = tanhf(x[i]);
        break;
    case CN_MAP_SCALE:
        for (size_t i = 0; i < count; i++)
            y[i] = op->alpha * x[i];
        break;
    default:
        break;
    }
}

void cpu_map_grad(const struct cpu_task *task)
{
    const struct cn_map *op = &task->call->map;
    size_t count = op->count * task->samples;
    const float *dy = task->in[0];
    const float *y = task->in[1];
    float *dx = task->out[0];

    switch (op->kind) {
    case CN_MAP_RELU:
        for (size_t i = 0; i < count; i++)
            dx[i] = y[i] > 0 ? dy[i] : 0;
        break;
    case CN_MAP_LEAKY_RELU:
        for (size_t i = 0; i < count; i++)
            dx[i] = y[i] > 0 ? dy[i] : op->alpha * dy[i];
        break;
    case CN_MAP_SIGMOID:
        for (size_t i = 0; i < count; i++)
            dx[i] = dy[i] * y[i] * (1 - y[i]);
        break;
    case CN_MAP_TANH:
        for (size_t i = 0; i < count; i++)
            dx[i] = dy[i] * (1 - y[i] * y[i]);
        break;
    case CN_MAP_SCALE:
        for (size_t i = 0; i < count; i++)
            dx[i] = op->alpha * dy[i];
        break;
    default:
        break;
    }
}

static float combine_one(enum cn_combine_kind kind, float a, float b)
{
    switch (kind) {
    case CN_COMBINE_ADD:
        return a + b;
    case CN_COMBINE_SUB:
        return a - b;
    default:
        break;
    }
    return a * b;
}

// Walks all elements of a sample: index[] counts, a and b follow by their strides.
struct walk {
    size_t index[CN_COMBINE_RANK_MAX];
    size_t a, b;
};

static void walk_next(struct walk *walk, const struct cn_combine *op)
{
    for (size_t d = op->rank; d-- > 0;) {
        walk->a += op->a[d];
        walk->b += op->b[d];
        if (++walk->index[d] < op->dims[d])
            return;
        walk->a -= op->a[d] * op->dims[d];
        walk->b -= op->b[d] * op->dims[d];
        walk->index[d] = 0;
    }
}

static size_t combine_count(const struct cn_combine *op)
{
    size_t count = 1;

    for (size_t d = 0; d < op->rank; d++)
        count *= op->dims[d];
    return count;
}

static bool contiguous(const struct cn_combine *op, const size_t *strides)
{
    return op->rank == 1 && strides[0] == 1;
}

static void combine_flat(const struct cn_combine *op, const float *a, const float *b, float *c)
{
    size_t count = op->dims[0];

    switch (op->kind) {
    case CN_COMBINE_ADD:
        for (size_t i = 0; i < count; i++)
            c[i] = a[i] + b[i];
        break;
    case CN_COMBINE_SUB:
        for (size_t i = 0; i < count; i++)
            c[i] = a[i] - b[i];
        break;
    case CN_COMBINE_MUL:
        for (size_t i = 0; i < count; i++)
            c[i] = a[i] * b[i];
        break;
    default:
        break;
    }
}

void cpu_combine(const struct cpu_task *task)
{
    const struct cn_combine *op = &task->call->combine;
    size_t count = combine_count(op);
    bool flat = contiguous(op, op->a) && contiguous(op, op->b);

    for (size_t n = 0; n < task->samples; n++) {
        const float *a = task->in[0] + n * task->call->in[0].stride;
        const float *b = task->in[1] + n * task->call->in[1].stride;
        float *c = task->out[0] + n * task->call->out[0].stride;
        struct walk walk = {0};

        if (flat)
            combine_flat(op, a, b, c);
        else
            for (size_t i = 0; i < count; i++, walk_next(&walk, op))
                c[i] = combine_one(op->kind, a[walk.a], b[walk.b]);
    }
}

// Words of the operand that the gradient is for: of a sample, or of all when they share it.
static size_t gradient_words(const struct cn_combine *op)
{
    size_t last = 0;

    for (size_t d = 0; d < op->rank; d++)
        last += op->a[d] * (op->dims[d] - 1);
    return last + 1;
}

void cpu_combine_grad(const struct cpu_task *task)
{
    const struct cn_combine *op = &task->call->combine;
    size_t count = combine_count(op);
    size_t words = gradient_words(op);
    size_t stride = task->call->out[0].stride;

    if (!task->add)
        memset(task->out[0], 0, (stride ? stride * task->samples : words) * sizeof(float));
    for (size_t n = 0; n < task->samples; n++) {
        const float *dc = task->in[0] + n * task->call->in[0].stride;
        const float *b = task->in[1] ? task->in[1] + n * task->call->in[1].stride : NULL;
        float *da = task->out[0] + n * stride;
        struct walk walk = {0};

        for (size_t i = 0; i < count; i++, walk_next(&walk, op))
            da[walk.a] += op->scale * (b ? dc[i] * b[walk.b] : dc[i]);
    }
}

static float sum_row(const float *row, size_t count)
{
    float part[8] = {0};
    float sum = 0;
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        for (size_t j = 0; j < 8; j++)
            part[j] += row[i + j];
    for (; i < count; i++)
        sum += row[i];
    for (size_t j = 0; j < 8; j++)
        sum += part[j];
    return sum;
}

void cpu_bias_grad(const struct cpu_task *task)
{
    const struct cn_bias *op = &task->call->bias;
    const float *dy = task->in[0];
    float *db = task->out[0];

    if (!task->add)
        memset(db, 0, op->channels * sizeof(*db));
    for (size_t r = 0; r < op->rows * task->samples; r++) {
        if (op->inner == 1)
            for (size_t c = 0; c < op->channels; c++)
                db[c] += op->scale * dy[c];
        else
            for (size_t c = 0; c < op->channels; c++)
                db[c] += op->scale * sum_row(dy + c * op->inner, op->inner);
        dy += op->channels * op->inner;
    }
}
