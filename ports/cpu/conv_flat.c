// Convolution over the flat rows of plane.h.
#include <assert.h>

#include "ports/cpu/conv.h"
#include "ports/cpu/plane.h"

// Taps of a packed tile of weights, which stays in the first-level cache.
#define INNER 256
// Words of the planes of a chunk of samples, which stay in the second-level cache.
#define PLANE_WORDS 32768
#define GRAD_WORDS (96 * 1024) // words of a chunk for the weight gradient: inputs and outputs

// A convolution: forward or, with mirrored taps and stride 1, the gradient for the input.
struct flat {
    const struct cn_window *window;
    struct planes planes;
    size_t group_in, group_out;
    size_t taps, row;           // taps of a group; words of a channel of strip
    bool mirrored;              // the gradient for the input
    const int32_t *offsets;     // offset of each tap in the planes of the group
    const float *weight, *bias; // weights and biases of the group; bias NULL: none
    float *packed;              // TILE_ROWS x INNER weights
    float *strip;               // TILE_ROWS channels of flat outputs
};

// Returns the convolution of dy that gives dx; the stride is 1.
static struct cn_window mirror(const struct cn_window *w)
{
    struct cn_window other = *w;

    other.channels_in = w->channels_out;
    other.channels_out = w->channels_in;
    other.relu = false;
    for (int axis = 0; axis < 2; axis++) {
        other.in[axis] = w->out[axis];
        other.out[axis] = w->in[axis];
        other.pad[axis] = (w->kernel[axis] - 1) * w->dilation[axis] - w->pad[axis];
    }
    return other;
}

// Returns how many of the samples fit into words; at least one.
static size_t samples_of(const struct cn_window *w, size_t channels, size_t words, size_t samples)
{
    struct planes one = planes_of(w, 1);
    size_t limit = words / (channels * one.flat * w->stride[0] * w->stride[1]);

    limit = limit < 1 ? 1 : limit;
    return limit < samples ? limit : samples;
}

static void fill_offsets(const struct cn_window *w, const struct planes *planes, size_t channels,
                         int32_t *offsets)
{
    for (size_t c = 0; c < channels; c++)
        for (size_t y = 0; y < w->kernel[0]; y++)
            for (size_t x = 0; x < w->kernel[1]; x++)
                *offsets++ = (int32_t)(c * planes->channel + plane_tap(planes, w, y, x));
}

// Packs the weights of output channels [o, o + height) and taps [k, k + inner), tap by tap.
static void pack(const struct flat *f, size_t o, size_t height, size_t k, size_t inner)
{
    size_t kernel = f->taps / f->group_in;

    if (!f->mirrored) {
        tile_transpose(f->packed, height, f->weight + o * f->taps + k, f->taps, height, inner);
        return;
    }
    // Tap t of dy's channel c for dx's channel o is weight[c][o][kernel - 1 - t].
    for (size_t j = 0; j < inner; j++) {
        size_t c = (k + j) / kernel, t = (k + j) % kernel;
        const float *from = f->weight + (c * f->group_out + o) * kernel + kernel - 1 - t;

        for (size_t i = 0; i < height; i++)
            f->packed[j * height + i] = from[i * kernel];
    }
}

// Computes all outputs of one group for the samples of planes. x is the first plane of the group, y
// the group's first output channel in the first sample.
static void run_group(const struct flat *f, const float *x, float *y, size_t y_sample)
{
    size_t plane = f->planes.out[0] * f->planes.out[1];
    size_t height;

    for (size_t o = 0; o < f->group_out; o += height) {
        height = tile_height(f->group_out - o);
        for (size_t k = 0; k < f->taps; k += INNER) {
            size_t inner = f->taps - k < INNER ? f->taps - k : INNER;

            pack(f, o, height, k, inner);
            for (size_t p = 0; p < f->planes.flat; p += TILE_COLS) {
                struct tile tile = {.inner = inner,
                                    .a = f->packed,
                                    .a_row = 1,
                                    .a_col = height,
                                    .b = x + p,
                                    .offsets = f->offsets + k,
                                    .c = f->strip + p,
                                    .c_row = f->row,
                                    .add = k > 0};

                tile_multiply(&tile, height);
            }
        }
        for (size_t i = 0; i < height; i++)
            plane_gather(&f->planes, y + (o + i) * plane, f->strip + i * f->row, y_sample,
                         f->bias ? f->bias[o + i] : 0, f->window->relu);
    }
}

// Returns the words of workspace for run.
static size_t flat_words(const struct cn_window *w, size_t samples)
{
    size_t group_in = w->channels_in / w->groups;
    struct planes planes = planes_of(w, samples_of(w, group_in, PLANE_WORDS, samples));
    size_t taps = group_in * w->kernel[0] * w->kernel[1];

    return round_up(taps, 16) + TILE_ROWS * INNER + TILE_ROWS * round_up(planes.flat, TILE_COLS) +
           group_in * planes.channel;
}

static void run(const struct cn_window *w, const struct cpu_task *task, const float *bias,
                bool mirrored)
{
    size_t group_in = w->channels_in / w->groups, group_out = w->channels_out / w->groups;
    size_t chunk = samples_of(w, group_in, PLANE_WORDS, task->samples);
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];
    size_t taps = group_in * w->kernel[0] * w->kernel[1];
    int32_t *offsets = (int32_t *)(void *)task->workspace;
    struct flat f = {.window = w,
                     .group_in = group_in,
                     .group_out = group_out,
                     .taps = taps,
                     .mirrored = mirrored,
                     .offsets = offsets,
                     .packed = task->workspace + round_up(taps, 16)};

    assert(task->workspace);
    f.strip = f.packed + TILE_ROWS * INNER;
    for (size_t n = 0; n < task->samples; n += f.planes.samples) {
        size_t left = task->samples - n;
        float *copy;

        f.planes = planes_of(w, left < chunk ? left : chunk);
        f.row = round_up(f.planes.flat, TILE_COLS);
        copy = f.strip + TILE_ROWS * f.row;
        fill_offsets(w, &f.planes, group_in, offsets);
        for (size_t g = 0; g < w->groups; g++) {
            const float *x = task->in[0] + (n * w->channels_in + g * group_in) * in;
            float *y = task->out[0] + (n * w->channels_out + g * group_out) * out;

            for (size_t c = 0; c < group_in; c++)
                plane_copy(&f.planes, copy + c * f.planes.channel, x + c * in, w->channels_in * in);
            f.weight = task->in[1] + g * group_out * taps;
            f.bias = bias ? bias + g * group_out : NULL;
            run_group(&f, copy, y, w->channels_out * out);
        }
    }
}

static void forward(const struct conv *conv, const struct cpu_task *task)
{
    run(conv->window, task, task->in[2], false);
}

static void grad_input(const struct conv *conv, const struct cpu_task *task)
{
    struct cn_window mirrored = mirror(conv->window);

    run(&mirrored, task, NULL, true);
}

// The weight gradient: a dot product over flat outputs and samples for each pair of output channel
// and tap. The sums of a block of pairs stay in registers for as many samples as the workspace
// holds.

#if TILE_ROWS > 6
#define BLOCK_CHANNELS 4
#define BLOCK_TAPS 6
#else
#define BLOCK_CHANNELS 2
#define BLOCK_TAPS 5
#endif

struct weight_grad {
    struct planes planes;
    size_t flat; // words of a channel of dy in flat rows
    size_t taps;
    const int32_t *offsets; // offset of each tap in the planes of the group
};

// Adds to dw[i][j] the products over all samples of the chunk, for a block of `channels` x
// BLOCK_TAPS. Only the first `taps` of them are used. channels is a compile-time constant.
ALWAYS_INLINE void grad_block(const struct weight_grad *grad, const float *dy, const float *x,
                              size_t k, float *dw, const size_t channels, size_t taps)
{
    vector sum[BLOCK_CHANNELS][BLOCK_TAPS];
    const float *row[BLOCK_TAPS];
    const size_t flat = grad->flat;

#pragma GCC unroll 8
    for (size_t j = 0; j < BLOCK_TAPS; j++)
        row[j] = x + grad->offsets[k + (j < taps ? j : 0)];
#pragma GCC unroll 8
    for (size_t i = 0; i < channels; i++)
#pragma GCC unroll 8
        for (size_t j = 0; j < BLOCK_TAPS; j++)
            sum[i][j] = (vector){0};
    for (size_t p = 0; p < flat; p += VECTOR) {
        vector dy_v[BLOCK_CHANNELS];

#pragma GCC unroll 8
        for (size_t i = 0; i < channels; i++)
            dy_v[i] = *(const vector *)(dy + i * flat + p);
#pragma GCC unroll 8
        for (size_t j = 0; j < BLOCK_TAPS; j++) {
            vector x_v = *(const vector *)(row[j] + p);

#pragma GCC unroll 8
            for (size_t i = 0; i < channels; i++)
                sum[i][j] += dy_v[i] * x_v;
        }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < channels; i++)
#pragma GCC unroll 8
        for (size_t j = 0; j < BLOCK_TAPS; j++)
            if (j < taps)
                dw[i * grad->taps + k + j] += tile_sum(sum[i][j]);
}

static void grad_channels(const struct weight_grad *grad, const float *dy, const float *x,
                          float *dw, size_t channels)
{
    for (size_t k = 0; k < grad->taps; k += BLOCK_TAPS) {
        size_t taps = grad->taps - k < BLOCK_TAPS ? grad->taps - k : BLOCK_TAPS;

        // NOLINTBEGIN(bugprone-branch-clone): each with a constant, so that its loops are unrolled.
        if (channels == BLOCK_CHANNELS)
            grad_block(grad, dy, x, k, dw, BLOCK_CHANNELS, taps);
        else if (channels == 2)
            grad_block(grad, dy, x, k, dw, 2, taps);
        else
            grad_block(grad, dy, x, k, dw, 1, taps);
        // NOLINTEND(bugprone-branch-clone)
    }
}

static void grad_weight(const struct conv *conv, const struct cpu_task *task)
{
    const struct cn_window *w = conv->window;
    size_t channels = conv->group_in + conv->group_out;
    size_t chunk = samples_of(w, channels, GRAD_WORDS, conv->samples);
    int32_t *offsets = (int32_t *)(void *)task->workspace;
    float *x = task->workspace + round_up(conv->taps, 16);
    struct weight_grad grad = {.taps = conv->taps, .offsets = offsets};

    for (size_t n = 0; n < conv->samples; n += grad.planes.samples) {
        size_t left = conv->samples - n, step;
        float *dy;

        grad.planes = planes_of(w, left < chunk ? left : chunk);
        grad.flat = round_up(grad.planes.flat, VECTOR);
        dy = x + conv->group_in * grad.planes.channel;
        fill_offsets(w, &grad.planes, conv->group_in, offsets);
        for (size_t g = 0; g < w->groups; g++) {
            const float *from =
                task->in[1] + n * conv->x_sample + g * conv->group_in * conv->x_channel;
            const float *grads =
                task->in[0] + n * conv->y_sample + g * conv->group_out * conv->y_channel;
            float *dw = task->out[0] + g * conv->group_out * conv->taps;

            for (size_t c = 0; c < conv->group_in; c++)
                plane_copy(&grad.planes, x + c * grad.planes.channel, from + c * conv->x_channel,
                           conv->x_sample);
            for (size_t o = 0; o < conv->group_out; o++)
                plane_spread(&grad.planes, dy + o * grad.flat, grads + o * conv->y_channel,
                             conv->y_sample, grad.flat - grad.planes.flat);
            for (size_t o = 0; o < conv->group_out; o += step) {
                step = conv->group_out - o;
                step = step >= BLOCK_CHANNELS ? BLOCK_CHANNELS : step >= 2 ? 2 : 1;
                grad_channels(&grad, dy + o * grad.flat, x, dw + o * conv->taps, step);
            }
        }
    }
}

static size_t workspace(const struct conv *conv, enum cn_op op)
{
    const struct cn_window *w = conv->window;
    struct cn_window mirrored;
    struct planes planes;

    if (op == CN_OP_CONV)
        return flat_words(w, conv->samples);
    if (op == CN_OP_CONV_GRAD_INPUT) {
        mirrored = mirror(w);
        return flat_words(&mirrored, conv->samples);
    }
    planes =
        planes_of(w, samples_of(w, conv->group_in + conv->group_out, GRAD_WORDS, conv->samples));
    return round_up(conv->taps, 16) + conv->group_in * planes.channel +
           conv->group_out * round_up(planes.flat, VECTOR) + VECTOR;
}

const struct conv_way conv_flat = {forward, grad_input, grad_weight, workspace};
