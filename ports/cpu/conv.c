// Convolution, forward and its gradient for the weights, by the flat rows of plane.h: for any
// kernel, stride, padding, dilation and number of groups.
#include <assert.h>

#include "ports/cpu/kernel.h"
#include "ports/cpu/plane.h"

// The planes that the forward pass and the weight gradient read x through.
static struct planes input_planes(const struct cn_window *w)
{
    size_t rows = w->out[0] + (w->kernel[0] - 1) * (size_t)w->dilation[0] / w->stride[0];
    size_t pitch = w->out[1] + (w->kernel[1] - 1) * (size_t)w->dilation[1] / w->stride[1];

    return planes_of(rows, pitch, w->stride);
}

// True when x itself is laid out like its planes.
static bool planes_are_input(const struct cn_window *w, const struct planes *planes)
{
    return w->stride[0] == 1 && w->stride[1] == 1 && !w->pad[0] && !w->pad[1] &&
           planes->rows == w->in[0] && planes->pitch == w->in[1];
}

static size_t taps_of(const struct cn_window *w)
{
    return (size_t)w->channels_in / w->groups * w->kernel[0] * w->kernel[1];
}

// Flat outputs of a plane: the last row ends with the last true column.
static size_t flat_outputs(const struct cn_window *w, const struct planes *planes)
{
    return (w->out[0] - 1) * planes->pitch + w->out[1];
}

static void fill_offsets(const struct cn_window *w, const struct planes *planes, int32_t *offsets)
{
    for (size_t c = 0; c < w->channels_in / w->groups; c++)
        for (size_t y = 0; y < w->kernel[0]; y++)
            for (size_t x = 0; x < w->kernel[1]; x++)
                *offsets++ = (int32_t)(c * planes->channel + plane_tap(planes, w, y, x));
}

static void copy_input(const struct cn_window *w, const struct planes *planes, float *to,
                       const float *from)
{
    const size_t pad[2] = {w->pad[0], w->pad[1]};
    size_t plane = (size_t)w->in[0] * w->in[1];

    for (size_t c = 0; c < w->channels_in; c++)
        plane_copy(planes, to + c * planes->channel, from + c * plane, w->in, pad);
    memset(to + w->channels_in * planes->channel, 0, TILE_COLS * sizeof(*to));
}

// Drops the junk columns of one channel and finishes its values.
static void store_plane(const struct cn_window *w, size_t pitch, const float *from, float bias,
                        float *y)
{
    for (size_t r = 0; r < w->out[0]; r++, from += pitch, y += w->out[1]) {
        if (w->relu)
            for (size_t q = 0; q < w->out[1]; q++) {
                float value = from[q] + bias;

                y[q] = value < 0 ? 0 : value;
            }
        else
            for (size_t q = 0; q < w->out[1]; q++)
                y[q] = from[q] + bias;
    }
}

struct forward {
    const struct cn_window *window;
    struct planes planes;
    size_t taps, flat, row; // row: words of a channel of strip
    const int32_t *offsets;
    const float *weight, *bias;
    float *strip; // TILE_ROWS channels of flat outputs
};

// All outputs of one group of one sample. x are the group's planes, y its first output channel.
static void forward_group(const struct forward *f, size_t group, const float *x, float *y)
{
    const struct cn_window *w = f->window;
    size_t channels = w->channels_out / w->groups;
    size_t plane = (size_t)w->out[0] * w->out[1];
    size_t height;

    for (size_t o = 0; o < channels; o += height) {
        size_t channel = group * channels + o;

        height = tile_height(channels - o);
        for (size_t p = 0; p < f->flat; p += TILE_COLS) {
            struct tile tile = {.inner = f->taps,
                                .a = f->weight + channel * f->taps,
                                .a_row = f->taps,
                                .a_col = 1,
                                .b = x + p,
                                .offsets = f->offsets,
                                .c = f->strip + p,
                                .c_row = f->row};

            tile_multiply(&tile, height);
        }
        for (size_t i = 0; i < height; i++)
            store_plane(w, f->planes.pitch, f->strip + i * f->row,
                        f->bias ? f->bias[channel + i] : 0, y + (o + i) * plane);
    }
}

void cpu_conv(const struct cpu_task *task)
{
    const struct cn_window *w = &task->call->window;
    struct forward f = {.window = w, .planes = input_planes(w), .taps = taps_of(w)};
    size_t group_in = w->channels_in / w->groups;
    size_t group_out = (size_t)w->channels_out / w->groups * w->out[0] * w->out[1];
    size_t in = (size_t)w->channels_in * w->in[0] * w->in[1];
    bool direct = planes_are_input(w, &f.planes);
    int32_t *offsets = (int32_t *)(void *)task->workspace;
    float *copy;

    f.flat = flat_outputs(w, &f.planes);
    f.row = round_up(f.flat, TILE_COLS);
    f.weight = task->in[1];
    f.bias = task->in[2];
    f.offsets = offsets;
    f.strip = task->workspace + round_up(f.taps, 16);
    copy = f.strip + TILE_ROWS * f.row;
    assert(task->workspace);
    fill_offsets(w, &f.planes, offsets);
    for (size_t n = 0; n < task->samples; n++) {
        const float *x = task->in[0] + n * in;

        if (!direct)
            copy_input(w, &f.planes, copy, x);
        for (size_t g = 0; g < w->groups; g++)
            forward_group(&f, g, (direct ? x : copy) + g * group_in * f.planes.channel,
                          task->out[0] + (n * w->groups + g) * group_out);
    }
}

size_t cpu_conv_workspace(const struct cn_call *call, size_t samples)
{
    const struct cn_window *w = &call->window;
    struct planes planes = input_planes(w);

    (void)samples;
    return round_up(taps_of(w), 16) + TILE_ROWS * round_up(flat_outputs(w, &planes), TILE_COLS) +
           w->channels_in * planes.channel + TILE_COLS;
}

// The weight gradient: for each (output channel, tap) a dot product over flat outputs and samples.
// A block of them keeps its sums in registers for as many samples as the workspace holds.

#if TILE_ROWS > 6
#define BLOCK_CHANNELS 4
#define BLOCK_TAPS 6
#else
#define BLOCK_CHANNELS 2
#define BLOCK_TAPS 5
#endif
#define GATHER_MAX 32             // samples
#define GATHER_WORDS (256 * 1024) // aim for the second cache

struct weight_grad {
    const struct cn_window *window;
    struct planes planes;
    size_t taps;
    size_t flat; // words of a channel of dy, whole vectors, junk columns zero
    size_t x_sample, dy_sample;
    const int32_t *offsets;
    float *x, *dy; // gathered samples
    size_t samples;
};

static struct weight_grad weight_grad_of(const struct cn_window *w)
{
    struct weight_grad grad = {.window = w, .planes = input_planes(w), .taps = taps_of(w)};

    grad.flat = round_up(flat_outputs(w, &grad.planes), VECTOR);
    grad.x_sample = w->channels_in * grad.planes.channel + TILE_COLS;
    grad.dy_sample = w->channels_out * grad.flat;
    return grad;
}

static size_t gather_limit(const struct weight_grad *grad, size_t samples)
{
    size_t limit = GATHER_WORDS / (grad->x_sample + grad->dy_sample);

    limit = limit < 1 ? 1 : limit;
    limit = limit < GATHER_MAX ? limit : GATHER_MAX;
    return limit < samples ? limit : samples;
}

static void gather_dy(const struct weight_grad *grad, float *to, const float *dy)
{
    const struct cn_window *w = grad->window;

    for (size_t c = 0; c < w->channels_out; c++, to += grad->flat) {
        size_t used = 0;

        for (size_t r = 0; r < w->out[0]; r++, dy += w->out[1]) {
            memcpy(to + used, dy, w->out[1] * sizeof(*to));
            used += w->out[1];
            for (; used < (r + 1) * grad->planes.pitch && used < grad->flat; used++)
                to[used] = 0;
        }
        for (; used < grad->flat; used++)
            to[used] = 0;
    }
}

static float sum_of(vector value)
{
    float sum = 0;

    for (int i = 0; i < VECTOR; i++)
        sum += value[i];
    return sum;
}

// dw[i][j] += over all gathered samples, for channels x taps of a block. The counts are constants.
ALWAYS_INLINE void grad_block(const struct weight_grad *grad, const float *dy, const float *x,
                              const int32_t *offsets, float *dw, const size_t channels,
                              const size_t taps)
{
    vector sum[BLOCK_CHANNELS][BLOCK_TAPS];

#pragma GCC unroll 8
    for (size_t i = 0; i < channels; i++)
#pragma GCC unroll 8
        for (size_t j = 0; j < taps; j++)
            sum[i][j] = (vector){0};
    for (size_t n = 0; n < grad->samples; n++) {
        const float *dy_n = dy + n * grad->dy_sample;
        const float *x_n = x + n * grad->x_sample;

        for (size_t p = 0; p < grad->flat; p += VECTOR) {
            vector dy_v[BLOCK_CHANNELS];

#pragma GCC unroll 8
            for (size_t i = 0; i < channels; i++)
                dy_v[i] = *(const vector *)(dy_n + i * grad->flat + p);
#pragma GCC unroll 8
            for (size_t j = 0; j < taps; j++) {
                vector x_v = *(const vector *)(x_n + offsets[j] + p);

#pragma GCC unroll 8
                for (size_t i = 0; i < channels; i++)
                    sum[i][j] += dy_v[i] * x_v;
            }
        }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < channels; i++)
#pragma GCC unroll 8
        for (size_t j = 0; j < taps; j++)
            dw[i * grad->taps + j] += sum_of(sum[i][j]);
}

static void grad_channels(const struct weight_grad *grad, const float *dy, const float *x,
                          float *dw, bool whole)
{
    const int32_t *offsets = grad->offsets;
    size_t k = 0;

    for (; k + BLOCK_TAPS <= grad->taps; k += BLOCK_TAPS)
        if (whole)
            grad_block(grad, dy, x, offsets + k, dw + k, BLOCK_CHANNELS, BLOCK_TAPS);
        else
            grad_block(grad, dy, x, offsets + k, dw + k, 1, BLOCK_TAPS);
    for (; k < grad->taps; k++)
        if (whole)
            grad_block(grad, dy, x, offsets + k, dw + k, BLOCK_CHANNELS, 1);
        else
            grad_block(grad, dy, x, offsets + k, dw + k, 1, 1);
}

static void grad_group(const struct weight_grad *grad, size_t group, float *dw)
{
    const struct cn_window *w = grad->window;
    size_t channels = w->channels_out / w->groups;
    const float *x = grad->x + group * (w->channels_in / w->groups) * grad->planes.channel;
    const float *dy = grad->dy + group * channels * grad->flat;

    for (size_t o = 0; o < channels;) {
        bool whole = channels - o >= BLOCK_CHANNELS;

        grad_channels(grad, dy + o * grad->flat, x, dw + (group * channels + o) * grad->taps,
                      whole);
        o += whole ? BLOCK_CHANNELS : 1;
    }
}

void cpu_conv_grad_weight(const struct cpu_task *task)
{
    const struct cn_window *w = &task->call->window;
    struct weight_grad grad = weight_grad_of(w);
    size_t in = (size_t)w->channels_in * w->in[0] * w->in[1];
    size_t out = (size_t)w->channels_out * w->out[0] * w->out[1];
    size_t limit = gather_limit(&grad, task->samples);
    int32_t *offsets = (int32_t *)(void *)task->workspace;

    if (!task->add)
        memset(task->out[0], 0, w->channels_out * grad.taps * sizeof(float));
    fill_offsets(w, &grad.planes, offsets);
    grad.offsets = offsets;
    grad.x = task->workspace + round_up(grad.taps, 16);
    grad.dy = grad.x + limit * grad.x_sample;
    for (size_t first = 0; first < task->samples; first += limit) {
        grad.samples = task->samples - first < limit ? task->samples - first : limit;
        for (size_t n = 0; n < grad.samples; n++) {
            copy_input(w, &grad.planes, grad.x + n * grad.x_sample, task->in[1] + (first + n) * in);
            gather_dy(&grad, grad.dy + n * grad.dy_sample, task->in[0] + (first + n) * out);
        }
        for (size_t g = 0; g < w->groups; g++)
            grad_group(&grad, g, task->out[0]);
    }
}

size_t cpu_conv_grad_weight_workspace(const struct cn_call *call, size_t samples)
{
    struct weight_grad grad = weight_grad_of(&call->window);

    return round_up(grad.taps, 16) +
           gather_limit(&grad, samples) * (grad.x_sample + grad.dy_sample);
}
