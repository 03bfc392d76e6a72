// The gradient of a convolution for its input: for each phase of the stride a convolution of dy
// with the taps that meet this phase, over the flat rows of plane.h.
//
// Input row i and output row o meet at tap k when i + pad = o * stride + k * dilation. With
// i + pad = q * stride + r that is k * dilation = r (mod stride) and o = q - k * dilation / stride.
#include "ports/cpu/kernel.h"
#include "ports/cpu/plane.h"

struct input_grad {
    const struct cn_window *window;
    struct planes planes; // of dy
    size_t front[2];      // zero rows and columns before dy
    size_t flat, row;
    int32_t *offsets;
    float *weight; // packed for a phase and a group: channels_in / groups rows
    float *strip;
};

static size_t reach(const struct cn_window *w, int axis)
{
    return (w->kernel[axis] - 1) * (size_t)w->dilation[axis] / w->stride[axis];
}

// Values of q that an input position can have.
static size_t steps(const struct cn_window *w, int axis)
{
    return ((size_t)w->in[axis] - 1 + w->pad[axis]) / w->stride[axis] + 1;
}

static struct input_grad input_grad_of(const struct cn_window *w)
{
    static const uint32_t one[2] = {1, 1};
    struct input_grad grad = {.window = w, .front = {reach(w, 0), reach(w, 1)}};

    grad.planes = planes_of(steps(w, 0) + grad.front[0], steps(w, 1) + grad.front[1], one);
    grad.flat = (steps(w, 0) - 1) * grad.planes.pitch + steps(w, 1);
    grad.row = round_up(grad.flat, TILE_COLS);
    return grad;
}

// Lists the taps of phase r of a group and packs their weights. Returns their number.
static size_t pack_taps(const struct input_grad *grad, const float *weight, size_t ry, size_t rx)
{
    const struct cn_window *w = grad->window;
    size_t channels_in = w->channels_in / w->groups, channels_out = w->channels_out / w->groups;
    size_t kernel = (size_t)w->kernel[0] * w->kernel[1];
    size_t row = channels_out * kernel;
    size_t count = 0;

    for (size_t o = 0; o < channels_out; o++)
        for (size_t k = 0; k < kernel; k++) {
            size_t dy = k / w->kernel[1] * w->dilation[0], dx = k % w->kernel[1] * w->dilation[1];

            if (dy % w->stride[0] != ry || dx % w->stride[1] != rx)
                continue;
            grad->offsets[count] =
                (int32_t)(o * grad->planes.channel +
                          (grad->front[0] - dy / w->stride[0]) * grad->planes.pitch +
                          grad->front[1] - dx / w->stride[1]);
            for (size_t c = 0; c < channels_in; c++)
                grad->weight[c * row + count] = weight[(o * channels_in + c) * kernel + k];
            count++;
        }
    return count;
}

// Scatters a phase of one channel into dx.
static void store_phase(const struct input_grad *grad, const float *from, size_t ry, size_t rx,
                        float *dx)
{
    const struct cn_window *w = grad->window;

    for (size_t q = 0; q < steps(w, 0); q++, from += grad->planes.pitch) {
        size_t y = q * w->stride[0] + ry;

        if (y < w->pad[0] || y - w->pad[0] >= w->in[0])
            continue;
        for (size_t p = 0; p < steps(w, 1); p++) {
            size_t x = p * w->stride[1] + rx;

            if (x >= w->pad[1] && x - w->pad[1] < w->in[1])
                dx[(y - w->pad[0]) * w->in[1] + x - w->pad[1]] = from[p];
        }
    }
}

static void phase_of_sample(const struct input_grad *grad, size_t taps, size_t ry, size_t rx,
                            const float *dy, float *dx)
{
    const struct cn_window *w = grad->window;
    size_t channels = w->channels_in / w->groups;
    size_t row = (size_t)w->channels_out / w->groups * w->kernel[0] * w->kernel[1];
    size_t plane = (size_t)w->in[0] * w->in[1];
    size_t height;

    for (size_t c = 0; c < channels; c += height) {
        height = tile_height(channels - c);
        for (size_t p = 0; p < grad->flat; p += TILE_COLS) {
            struct tile tile = {.inner = taps,
                                .a = grad->weight + c * row,
                                .a_row = row,
                                .a_col = 1,
                                .b = dy + p,
                                .offsets = grad->offsets,
                                .c = grad->strip + p,
                                .c_row = grad->row};

            tile_multiply(&tile, height);
        }
        for (size_t i = 0; i < height; i++)
            store_phase(grad, grad->strip + i * grad->row, ry, rx, dx + (c + i) * plane);
    }
}

// Makes the planes of the output channels of one group.
static void copy_dy(const struct input_grad *grad, float *to, const float *dy)
{
    const struct cn_window *w = grad->window;
    size_t plane = (size_t)w->out[0] * w->out[1];

    for (size_t o = 0; o < w->channels_out / w->groups; o++)
        plane_copy(&grad->planes, to + o * grad->planes.channel, dy + o * plane, w->out,
                   grad->front);
}

static void group_phase(const struct input_grad *grad, const struct cpu_task *task, size_t group,
                        size_t phase, float *copy)
{
    const struct cn_window *w = grad->window;
    size_t ry = phase / w->stride[1], rx = phase % w->stride[1];
    size_t channels_in = w->channels_in / w->groups, channels_out = w->channels_out / w->groups;
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];
    size_t kernel = (size_t)w->kernel[0] * w->kernel[1];
    size_t taps =
        pack_taps(grad, task->in[1] + group * channels_out * channels_in * kernel, ry, rx);

    for (size_t n = 0; n < task->samples; n++) {
        const float *dy = task->in[0] + (n * w->channels_out + group * channels_out) * out;
        float *dx = task->out[0] + (n * w->channels_in + group * channels_in) * in;

        copy_dy(grad, copy, dy);
        phase_of_sample(grad, taps, ry, rx, copy, dx);
    }
}

void cpu_conv_grad_input(const struct cpu_task *task)
{
    const struct cn_window *w = &task->call->window;
    struct input_grad grad = input_grad_of(w);
    size_t row = (size_t)w->channels_out / w->groups * w->kernel[0] * w->kernel[1];
    float *copy;

    grad.offsets = (int32_t *)(void *)task->workspace;
    grad.weight = task->workspace + round_up(row, 16);
    grad.strip = grad.weight + round_up(row * (w->channels_in / w->groups), 16);
    copy = grad.strip + TILE_ROWS * grad.row;
    for (size_t g = 0; g < w->groups; g++)
        for (size_t phase = 0; phase < (size_t)w->stride[0] * w->stride[1]; phase++)
            group_phase(&grad, task, g, phase, copy);
}

size_t cpu_conv_grad_input_workspace(const struct cn_call *call, size_t samples)
{
    const struct cn_window *w = &call->window;
    struct input_grad grad = input_grad_of(w);
    size_t row = (size_t)w->channels_out / w->groups * w->kernel[0] * w->kernel[1];

    (void)samples;
    return round_up(row, 16) + round_up(row * (w->channels_in / w->groups), 16) +
           TILE_ROWS * grad.row + w->channels_out / w->groups * grad.planes.channel + TILE_COLS;
}
