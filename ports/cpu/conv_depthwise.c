// Depthwise convolution: one channel at a time over the flat rows of plane.h, for as many samples
// as stay in the first-level cache.
#include <assert.h>

#include "ports/cpu/conv.h"
#include "ports/cpu/plane.h"

#define WIDE 8           // vectors of outputs that are computed together
#define PLANE_WORDS 3072 // words of one channel of a chunk of samples
#define TAPS 3           // taps that the weight gradient sums together

// One call on one lane.
struct depthwise {
    const struct conv *conv;
    struct planes planes;
    size_t chunk;        // most samples at a time
    int32_t *offsets;    // offset of each tap in the plane
    float *plane, *flat; // one channel of inputs; of outputs in flat rows
};

static size_t chunk_of(const struct conv *conv)
{
    struct planes one = planes_of(conv->window, 1);
    size_t limit = PLANE_WORDS / (one.flat * one.stride[0] * one.stride[1]);

    limit = limit < 1 ? 1 : limit;
    return limit < conv->samples ? limit : conv->samples;
}

static size_t flat_words(const struct planes *planes)
{
    return round_up(planes->flat, WIDE * VECTOR);
}

static size_t workspace(const struct conv *conv, enum cn_op op)
{
    struct planes planes = planes_of(conv->window, chunk_of(conv));

    (void)op;
    return round_up(conv->kernel, 16) + planes.channel + flat_words(&planes) + PLANE_SLACK;
}

static struct depthwise depthwise_of(const struct conv *conv, const struct cpu_task *task)
{
    struct depthwise d = {.conv = conv, .chunk = chunk_of(conv)};

    assert(task->workspace);
    d.offsets = (int32_t *)(void *)task->workspace;
    d.flat = task->workspace + round_up(conv->kernel, 16);
    return d;
}

static void start(struct depthwise *d, size_t first)
{
    const struct cn_window *w = d->conv->window;
    size_t left = d->conv->samples - first;
    size_t i = 0;

    d->planes = planes_of(w, left < d->chunk ? left : d->chunk);
    d->plane = d->flat + flat_words(&d->planes);
    for (size_t y = 0; y < w->kernel[0]; y++)
        for (size_t x = 0; x < w->kernel[1]; x++)
            d->offsets[i++] = (int32_t)plane_tap(&d->planes, w, y, x);
}

// Computes flat = sum over taps of weight * plane.
static void convolve(const struct depthwise *d, const float *weight)
{
    const size_t taps = d->conv->kernel;

    for (size_t p = 0; p < d->planes.flat; p += WIDE * VECTOR) {
        vector sum[WIDE];

#pragma GCC unroll 8
        for (size_t j = 0; j < WIDE; j++)
            sum[j] = (vector){0};
        for (size_t k = 0; k < taps; k++) {
            const float *from = d->plane + d->offsets[k] + p;
            float tap = weight[k];

#pragma GCC unroll 8
            for (size_t j = 0; j < WIDE; j++)
                sum[j] += tap * *(const vector *)(from + j * VECTOR);
        }
#pragma GCC unroll 8
        for (size_t j = 0; j < WIDE; j++)
            *(vector *)(d->flat + p + j * VECTOR) = sum[j];
    }
}

// Computes plane = sum over taps of weight * flat, each tap at its offset.
static void spread(const struct depthwise *d, const float *weight)
{
    const size_t flat = round_up(d->planes.flat, VECTOR);

    memset(d->plane, 0, d->planes.channel * sizeof(float));
    for (size_t k = 0; k < d->conv->kernel; k++) {
        float *to = d->plane + d->offsets[k];
        float tap = weight[k];

        for (size_t p = 0; p < flat; p += VECTOR)
            *(vector *)(to + p) += tap * *(const vector *)(d->flat + p);
    }
}

// Adds to dw[k] the sum of flat * plane at tap k.
static void correlate(const struct depthwise *d, float *dw)
{
    const size_t flat = round_up(d->planes.flat, VECTOR);
    const size_t taps = d->conv->kernel;

    for (size_t k = 0; k < taps; k += TAPS) {
        vector sum[TAPS][2] = {0};
        const float *from[TAPS];
        size_t p = 0;

        for (size_t j = 0; j < TAPS; j++)
            from[j] = d->plane + d->offsets[k + j < taps ? k + j : k];
        for (; p + 2 * VECTOR <= flat; p += 2 * VECTOR) {
            vector low = *(const vector *)(d->flat + p);
            vector high = *(const vector *)(d->flat + p + VECTOR);

#pragma GCC unroll 4
            for (size_t j = 0; j < TAPS; j++) {
                sum[j][0] += low * *(const vector *)(from[j] + p);
                sum[j][1] += high * *(const vector *)(from[j] + p + VECTOR);
            }
        }
        if (p < flat)
#pragma GCC unroll 4
            for (size_t j = 0; j < TAPS; j++)
                sum[j][0] += *(const vector *)(d->flat + p) * *(const vector *)(from[j] + p);
        for (size_t j = 0; j < TAPS && k + j < taps; j++)
            dw[k + j] += tile_sum(sum[j][0] + sum[j][1]);
    }
}

static void forward(const struct conv *conv, const struct cpu_task *task)
{
    struct depthwise d = depthwise_of(conv, task);

    for (size_t n = 0; n < conv->samples; n += d.planes.samples) {
        start(&d, n);
        for (size_t c = 0; c < conv->window->channels_in; c++) {
            plane_copy(&d.planes, d.plane, task->in[0] + n * conv->x_sample + c * conv->x_channel,
                       conv->x_sample);
            convolve(&d, task->in[1] + c * conv->kernel);
            plane_gather(&d.planes, task->out[0] + n * conv->y_sample + c * conv->y_channel, d.flat,
                         conv->y_sample, task->in[2] ? task->in[2][c] : 0, conv->window->relu);
        }
    }
}

static void grad_input(const struct conv *conv, const struct cpu_task *task)
{
    struct depthwise d = depthwise_of(conv, task);

    for (size_t n = 0; n < conv->samples; n += d.planes.samples) {
        start(&d, n);
        for (size_t c = 0; c < conv->window->channels_in; c++) {
            plane_spread(&d.planes, d.flat, task->in[0] + n * conv->y_sample + c * conv->y_channel,
                         conv->y_sample, flat_words(&d.planes) - d.planes.flat);
            spread(&d, task->in[1] + c * conv->kernel);
            plane_restore(&d.planes, task->out[0] + n * conv->x_sample + c * conv->x_channel,
                          d.plane, conv->x_sample);
        }
    }
}

static void grad_weight(const struct conv *conv, const struct cpu_task *task)
{
    struct depthwise d = depthwise_of(conv, task);

    for (size_t n = 0; n < conv->samples; n += d.planes.samples) {
        start(&d, n);
        for (size_t c = 0; c < conv->window->channels_in; c++) {
            plane_copy(&d.planes, d.plane, task->in[1] + n * conv->x_sample + c * conv->x_channel,
                       conv->x_sample);
            plane_spread(&d.planes, d.flat, task->in[0] + n * conv->y_sample + c * conv->y_channel,
                         conv->y_sample, flat_words(&d.planes) - d.planes.flat);
            correlate(&d, task->out[0] + c * conv->kernel);
        }
    }
}

const struct conv_way conv_depthwise = {forward, grad_input, grad_weight, workspace};
