// Batch normalization. The statistics cover the whole batch. Each lane shows its part to the
// others, they meet, and every lane adds up all parts in the order of the lanes.
#include <math.h>
#include <string.h>

#include "ports/cpu/kernel.h"
#include "ports/cpu/tile.h"

#define BLOCK 1024 // elements that are summed in single precision before the double-precision sum

typedef int32_t mask __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

size_t cpu_batch_norm_shown(const struct cn_call *call)
{
    return call->batch_norm.frozen ? 0 : 2 * call->batch_norm.channels + 1;
}

// Two sums that are found in one pass.
struct sums {
    double first, second;
};

static float add_up(vector v)
{
    float sum = 0;

    for (size_t i = 0; i < VECTOR; i++)
        sum += v[i];
    return sum;
}

// Adds the sum of (x - shift) and the sum of its square.
static void sum_squares(const float *x, size_t count, float shift, struct sums *sums)
{
    for (size_t end, i = 0; i < count; i = end) {
        vector one = {0}, two = {0};
        float last_one = 0, last_two = 0;

        end = count - i < BLOCK ? count : i + BLOCK;
        for (; i + VECTOR <= end; i += VECTOR) {
            vector d = *(const vector *)(x + i) - shift;

            one += d;
            two += d * d;
        }
        for (; i < end; i++) {
            last_one += x[i] - shift;
            last_two += (x[i] - shift) * (x[i] - shift);
        }
        sums->first += (double)(add_up(one) + last_one);
        sums->second += (double)(add_up(two) + last_two);
    }
}

// Returns the mean of a channel over this lane's samples, and the sum of squares around it. The
// shift, a value near the mean, keeps the difference of the two sums precise.
static struct sums lane_moments(const struct cpu_task *task, size_t c)
{
    const struct cn_batch_norm *op = &task->call->batch_norm;
    const float *x = task->in[0] + c * op->inner;
    double count = (double)task->samples * (double)op->inner;
    struct sums first = {0}, sums = {0};
    float shift;

    if (!task->samples)
        return sums;
    sum_squares(x, op->inner, 0, &first);
    shift = (float)(first.first / (double)op->inner);
    for (size_t n = 0; n < task->samples; n++)
        sum_squares(x + n * op->channels * op->inner, op->inner, shift, &sums);
    return (struct sums){(double)shift + sums.first / count,
                         sums.second - sums.first * sums.first / count};
}

// Returns the mean over all lanes' samples and the sum of squares around it (Chan et al., 1979).
static struct sums join_moments(const struct cpu_task *task, size_t c)
{
    size_t channels = task->call->batch_norm.channels;
    double samples = task->hyper->samples;
    struct sums all = {0};

    for (uint32_t i = 0; i < task->lanes; i++) {
        const double *shown = task->shown + i * task->shown_stride;

        all.first += shown[2 * channels] / samples * shown[c];
    }
    for (uint32_t i = 0; i < task->lanes; i++) {
        const double *shown = task->shown + i * task->shown_stride;
        double count = shown[2 * channels] * (double)task->call->batch_norm.inner;
        double distance = shown[c] - all.first;

        all.second += shown[channels + c] + count * distance * distance;
    }
    return all;
}

// Adds this lane's share of the batch's statistics to the gradient row, weighted by its samples.
static void add_statistics(const struct cpu_task *task, size_t c, float mean, float variance)
{
    float samples = (float)task->samples;

    if (!task->out[2])
        return;
    task->out[2][c] = (task->add ? task->out[2][c] : 0) + samples * mean;
    task->out[3][c] = (task->add ? task->out[3][c] : 0) + samples * variance;
}

// Computes the mean and 1 / deviation of every channel. The lanes meet in between.
static void find_moments(const struct cpu_task *task)
{
    const struct cn_batch_norm *op = &task->call->batch_norm;
    double *own = task->shown + task->lane * task->shown_stride;
    double count = (double)task->hyper->samples * (double)op->inner;
    float *mean = task->out[1], *inverse = task->out[1] + op->channels;

    for (size_t c = 0; c < op->channels; c++) {
        struct sums moments = lane_moments(task, c);

        own[c] = moments.first;
        own[op->channels + c] = moments.second;
    }
    own[2 * op->channels] = (double)task->samples;
    cpu_lanes_meet(task->threads);
    for (size_t c = 0; c < op->channels; c++) {
        struct sums all = join_moments(task, c);

        mean[c] = (float)all.first;
        inverse[c] = (float)(1 / sqrt(all.second / count + (double)op->epsilon));
        add_statistics(task, c, mean[c], (float)(all.second / (count > 1 ? count - 1 : 1)));
    }
}

// Takes the mean and 1 / deviation from the running statistics. A running variance may be negative
// when an encoded update was rounded.
static void take_moments(const struct cpu_task *task)
{
    const struct cn_batch_norm *op = &task->call->batch_norm;
    float *mean = task->out[1], *inverse = task->out[1] + op->channels;

    for (size_t c = 0; c < op->channels; c++) {
        float variance = task->in[4][c] < 0 ? 0 : task->in[4][c];

        mean[c] = task->in[3][c];
        inverse[c] = 1 / sqrtf(variance + op->epsilon);
    }
}

// Computes y = x * scale + shift, plus the residual if there is one, with ReLU if the op says so.
static void normalize_row(const struct cn_batch_norm *op, const float *x, const float *residual,
                          float scale, float shift, float *y)
{
    if (residual && op->relu)
        for (size_t i = 0; i < op->inner; i++) {
            float value = x[i] * scale + shift + residual[i];

            y[i] = value < 0 ? 0 : value;
        }
    else if (residual)
        for (size_t i = 0; i < op->inner; i++)
            y[i] = x[i] * scale + shift + residual[i];
    else if (op->relu)
        for (size_t i = 0; i < op->inner; i++) {
            float value = x[i] * scale + shift;

            y[i] = value < 0 ? 0 : value;
        }
    else
        for (size_t i = 0; i < op->inner; i++)
            y[i] = x[i] * scale + shift;
}

// y = (x - mean) / deviation * gamma + beta.
void cpu_batch_norm(const struct cpu_task *task)
{
    const struct cn_batch_norm *op = &task->call->batch_norm;
    const float *mean = task->out[1], *inverse = task->out[1] + op->channels;
    const float *residual = task->in[5];

    if (op->frozen)
        take_moments(task);
    else
        find_moments(task);
    for (size_t n = 0; n < task->samples; n++)
        for (size_t c = 0; c < op->channels; c++) {
            size_t at = (n * op->channels + c) * op->inner;
            float scale = inverse[c] * task->in[1][c];

            normalize_row(op, task->in[0] + at, residual ? residual + at : NULL, scale,
                          task->in[2][c] - mean[c] * scale, task->out[0] + at);
        }
}

// Adds the sum of dy and the sum of dy * (x - mean). If y is given, elements where y is not above 0
// count as 0.
static void sum_products(const float *dy, const float *x, const float *y, size_t count, float mean,
                         struct sums *sums)
{
    for (size_t end, i = 0; i < count; i = end) {
        vector one = {0}, two = {0};
        float last_one = 0, last_two = 0;

        end = count - i < BLOCK ? count : i + BLOCK;
        for (; i + VECTOR <= end; i += VECTOR) {
            vector d = *(const vector *)(dy + i);

            if (y)
                d = (vector)((mask)d & (*(const vector *)(y + i) > 0));
            one += d;
            two += d * (*(const vector *)(x + i) - mean);
        }
        for (; i < end; i++) {
            float d = y && !(y[i] > 0) ? 0 : dy[i];

            last_one += d;
            last_two += d * (x[i] - mean);
        }
        sums->first += (double)(add_up(one) + last_one);
        sums->second += (double)(add_up(two) + last_two);
    }
}

// Computes dbeta = sum dy and dgamma = sum dy * (x - mean) / deviation, and shows both to the other
// lanes.
static void sum_gradients(const struct cpu_task *task, const float *y)
{
    const struct cn_batch_norm *op = &task->call->batch_norm;
    const float *mean = task->in[3], *inverse = task->in[3] + op->channels;
    double *own = op->frozen ? NULL : task->shown + task->lane * task->shown_stride;

    for (size_t c = 0; c < op->channels; c++) {
        struct sums sums = {0};

        for (size_t n = 0; n < task->samples; n++) {
            size_t at = (n * op->channels + c) * op->inner;

            sum_products(task->in[0] + at, task->in[1] + at, y ? y + at : NULL, op->inner, mean[c],
                         &sums);
        }
        sums.second *= (double)inverse[c];
        if (task->out[1])
            task->out[1][c] = (task->add ? task->out[1][c] : 0) + (float)sums.second;
        if (task->out[2])
            task->out[2][c] = (task->add ? task->out[2][c] : 0) + (float)sums.first;
        if (own) {
            own[c] = sums.first;
            own[op->channels + c] = sums.second;
        }
    }
}

// The factors of a channel's gradient: dx = gamma / deviation * (dy - mean(dy) - (x - mean) /
// deviation^2 * mean(dy * (x - mean))).
struct backward {
    float scale, offset, slope; // dx = scale * dy - offset - slope * (x - mean)
    float mean;
};

static struct backward backward_of(const struct cpu_task *task, size_t c)
{
    const struct cn_batch_norm *op = &task->call->batch_norm;
    const float *mean = task->in[3], *inverse = task->in[3] + op->channels;
    struct backward b = {.scale = task->in[2][c] * inverse[c], .mean = mean[c]};
    double count = (double)task->hyper->samples * (double)op->inner;
    struct sums all = {0};

    for (uint32_t i = 0; !op->frozen && i < task->lanes; i++) {
        all.first += task->shown[i * task->shown_stride + c];
        all.second += task->shown[i * task->shown_stride + op->channels + c];
    }
    b.offset = b.scale * (float)(all.first / count);
    b.slope = b.scale * inverse[c] * (float)(all.second / count);
    return b;
}

static void row_back(const struct backward *b, const float *dy, const float *x, const float *y,
                     size_t count, float *dx)
{
    if (y)
        for (size_t i = 0; i < count; i++)
            dx[i] = b->scale * (y[i] > 0 ? dy[i] : 0) - b->offset - b->slope * (x[i] - b->mean);
    else
        for (size_t i = 0; i < count; i++)
            dx[i] = b->scale * dy[i] - b->offset - b->slope * (x[i] - b->mean);
}

static void residual_back(const float *dy, const float *y, size_t count, float *dresidual)
{
    for (size_t i = 0; i < count; i++)
        dresidual[i] = !y || y[i] > 0 ? dy[i] : 0;
}

void cpu_batch_norm_grad(const struct cpu_task *task)
{
    const struct cn_batch_norm *op = &task->call->batch_norm;
    const float *y = op->relu ? task->in[4] : NULL;

    sum_gradients(task, y);
    if (!op->frozen)
        cpu_lanes_meet(task->threads);
    for (size_t c = 0; c < op->channels; c++) {
        struct backward b = backward_of(task, c);

        for (size_t n = 0; n < task->samples; n++) {
            size_t at = (n * op->channels + c) * op->inner;
            const float *cut = y ? y + at : NULL;

            if (task->out[0])
                row_back(&b, task->in[0] + at, task->in[1] + at, cut, op->inner, task->out[0] + at);
            if (task->out[3])
                residual_back(task->in[0] + at, cut, op->inner, task->out[3] + at);
        }
    }
}
