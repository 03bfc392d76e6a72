// Resizing of planes, and the largest or smallest elements along dimensions.
#include <math.h>
#include <string.h>

#include "ports/cpu/kernel.h"

// The inputs of an output along one axis: share of the input at first, 1 - share of the one at
// second.
struct tap {
    size_t first, second;
    float share;
};

// Returns the position in the input of output number out.
static float position(const struct cn_resize *op, int axis, size_t out)
{
    float at = (float)out;

    switch (op->place) {
    case CN_RESIZE_HALF_PIXEL:
        return (at + 0.5f) / op->scale[axis] - 0.5f;
    case CN_RESIZE_ALIGN_CORNERS:
        return op->out[axis] > 1 ? at * (float)(op->in[axis] - 1) / (float)(op->out[axis] - 1) : 0;
    case CN_RESIZE_ASYMMETRIC:
        break;
    }
    return at / op->scale[axis];
}

static struct tap tap_of(const struct cn_resize *op, int axis, size_t out)
{
    float largest = (float)(op->in[axis] - 1);
    float at = position(op, axis, out);
    struct tap tap = {.share = 1};

    if (op->kind == CN_RESIZE_NEAREST)
        at = op->round ? ceilf(at - 0.5f) : floorf(at);
    at = at < 0 ? 0 : at > largest ? largest : at;
    tap.first = (size_t)at;
    tap.second = tap.first + 1 < op->in[axis] ? tap.first + 1 : tap.first;
    tap.share = 1 - (at - (float)tap.first);
    return tap;
}

static void resize_plane(const struct cn_resize *op, const float *x, float *y)
{
    for (size_t r = 0; r < op->out[0]; r++) {
        struct tap row = tap_of(op, 0, r);
        const float *above = x + row.first * op->in[1], *below = x + row.second * op->in[1];

        for (size_t c = 0; c < op->out[1]; c++) {
            struct tap col = tap_of(op, 1, c);

            if (op->kind == CN_RESIZE_NEAREST)
                *y++ = above[col.first];
            else
                *y++ = row.share *
                           (col.share * above[col.first] + (1 - col.share) * above[col.second]) +
                       (1 - row.share) *
                           (col.share * below[col.first] + (1 - col.share) * below[col.second]);
        }
    }
}

static void resize_plane_back(const struct cn_resize *op, const float *dy, float *dx)
{
    for (size_t r = 0; r < op->out[0]; r++) {
        struct tap row = tap_of(op, 0, r);
        float *above = dx + row.first * op->in[1], *below = dx + row.second * op->in[1];

        for (size_t c = 0; c < op->out[1]; c++, dy++) {
            struct tap col = tap_of(op, 1, c);

            above[col.first] += row.share * col.share * *dy;
            above[col.second] += row.share * (1 - col.share) * *dy;
            below[col.first] += (1 - row.share) * col.share * *dy;
            below[col.second] += (1 - row.share) * (1 - col.share) * *dy;
        }
    }
}

void cpu_resize(const struct cpu_task *task)
{
    const struct cn_resize *op = &task->call->resize;
    size_t in = (size_t)op->in[0] * op->in[1], out = (size_t)op->out[0] * op->out[1];

    for (size_t plane = 0; plane < task->samples * op->channels; plane++)
        resize_plane(op, task->in[0] + plane * in, task->out[0] + plane * out);
}

void cpu_resize_grad(const struct cpu_task *task)
{
    const struct cn_resize *op = &task->call->resize;
    size_t in = (size_t)op->in[0] * op->in[1], out = (size_t)op->out[0] * op->out[1];

    memset(task->out[0], 0, task->samples * op->channels * in * sizeof(float));
    for (size_t plane = 0; plane < task->samples * op->channels; plane++)
        resize_plane_back(op, task->in[0] + plane * out, task->out[0] + plane * in);
}

// Steps to the next element of x. Returns the index in y that follows y.
static size_t next_element(const struct cn_extreme *op, size_t *index, size_t y)
{
    for (size_t d = op->rank; d-- > 0;) {
        y += op->y[d];
        if (++index[d] < op->dims[d])
            return y;
        y -= op->y[d] * op->dims[d];
        index[d] = 0;
    }
    return y;
}

static size_t input_words(const struct cn_extreme *op)
{
    size_t words = 1;

    for (size_t d = 0; d < op->rank; d++)
        words *= op->dims[d];
    return words;
}

static size_t output_words(const struct cn_extreme *op)
{
    size_t last = 0;

    for (size_t d = 0; d < op->rank; d++)
        last += op->y[d] * (op->dims[d] - 1);
    return last + 1;
}

// Returns whether value replaces best. A NaN does, so that it reaches the loss.
static bool is_better(enum cn_extreme_kind kind, float value, float best)
{
    return (kind == CN_EXTREME_MAX ? value > best : value < best) ||
           (value != value && best == best);
}

void cpu_extreme(const struct cpu_task *task)
{
    const struct cn_extreme *op = &task->call->extreme;
    size_t words = input_words(op), results = output_words(op);

    for (size_t n = 0; n < task->samples; n++) {
        const float *x = task->in[0] + n * words;
        float *y = task->out[0] + n * results;
        int32_t *place = (int32_t *)(void *)task->out[1] + n * results;
        size_t index[CN_COMBINE_RANK_MAX] = {0}, at = 0;

        memset(place, 0xff, results * sizeof(*place)); // -1: nothing seen
        for (size_t i = 0; i < words; i++, at = next_element(op, index, at))
            if (place[at] < 0 || is_better(op->kind, x[i], y[at])) {
                y[at] = x[i];
                place[at] = (int32_t)i;
            }
    }
}

void cpu_extreme_grad(const struct cpu_task *task)
{
    const struct cn_extreme *op = &task->call->extreme;
    size_t words = input_words(op), results = output_words(op);

    memset(task->out[0], 0, task->samples * words * sizeof(float));
    for (size_t n = 0; n < task->samples; n++) {
        const int32_t *place = (const int32_t *)(const void *)task->in[1] + n * results;

        for (size_t i = 0; i < results; i++)
            task->out[0][n * words + (size_t)place[i]] = task->in[0][n * results + i];
    }
}
