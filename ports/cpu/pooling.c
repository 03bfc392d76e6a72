// Max and average pooling over the planes of a sample.
#include <string.h>

#include "ports/cpu/kernel.h"

// The taps [first, end) of a window along one axis.
struct range {
    size_t first, end;
};

// Returns the taps of output o's window that lie inside the input.
static struct range inside(const struct cn_window *w, int axis, size_t o)
{
    size_t start = o * w->stride[axis];
    size_t pad = w->pad[axis];
    size_t skipped = 0;
    struct range range;

    while (start + skipped * w->dilation[axis] < pad)
        skipped++;
    range.first = skipped;
    range.end = skipped;
    while (range.end < w->kernel[axis] && start + range.end * w->dilation[axis] - pad < w->in[axis])
        range.end++;
    return range;
}

// Returns the index in the plane of tap (ky, kx) of output (y, x). The tap must lie inside.
static size_t place_of(const struct cn_window *w, size_t y, size_t x, size_t ky, size_t kx)
{
    size_t row = y * w->stride[0] + ky * w->dilation[0] - w->pad[0];
    size_t col = x * w->stride[1] + kx * w->dilation[1] - w->pad[1];

    return row * w->in[1] + col;
}

static void max_output(const struct cn_window *w, const float *x, size_t oy, size_t ox, float *y,
                       int32_t *place)
{
    struct range rows = inside(w, 0, oy), cols = inside(w, 1, ox);
    size_t best = place_of(w, oy, ox, rows.first, cols.first);

    for (size_t ky = rows.first; ky < rows.end; ky++)
        for (size_t kx = cols.first; kx < cols.end; kx++) {
            size_t at = place_of(w, oy, ox, ky, kx);

            // Takes a NaN too, so that it reaches the loss.
            if (x[at] > x[best] || x[at] != x[at])
                best = at;
        }
    *y = x[best];
    *place = (int32_t)best;
}

// Pools with the usual window of 2 x 2, without tests for the border.
static void max_plane_2x2(const struct cn_window *w, const float *x, float *y, int32_t *place)
{
    for (size_t oy = 0; oy < w->out[0]; oy++) {
        size_t top = 2 * oy * w->in[1];

        for (size_t ox = 0; ox < w->out[1]; ox++) {
            size_t at = top + 2 * ox;
            size_t under = at + w->in[1];
            size_t a = x[at + 1] > x[at] || x[at + 1] != x[at + 1] ? at + 1 : at;
            size_t b = x[under + 1] > x[under] || x[under + 1] != x[under + 1] ? under + 1 : under;
            size_t best = x[b] > x[a] || x[b] != x[b] ? b : a;

            *y++ = x[best];
            *place++ = (int32_t)best;
        }
    }
}

static bool is_2x2(const struct cn_window *w)
{
    return w->kernel[0] == 2 && w->kernel[1] == 2 && w->stride[0] == 2 && w->stride[1] == 2 &&
           !w->pad[0] && !w->pad[1] && w->dilation[0] == 1 && w->dilation[1] == 1 &&
           2 * w->out[0] <= w->in[0] && 2 * w->out[1] <= w->in[1];
}

void cpu_max_pool(const struct cpu_task *task)
{
    const struct cn_window *w = &task->call->window;
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];
    bool small = is_2x2(w);
    const float *x = task->in[0];
    float *y = task->out[0];
    int32_t *place = (int32_t *)(void *)task->out[1];

    for (size_t plane = 0; plane < task->samples * w->channels_in; plane++) {
        if (small)
            max_plane_2x2(w, x, y, place);
        else
            for (size_t i = 0; i < out; i++)
                max_output(w, x, i / w->out[1], i % w->out[1], y + i, place + i);
        x += in;
        y += out;
        place += out;
    }
}

void cpu_max_pool_grad(const struct cpu_task *task)
{
    const struct cn_window *w = &task->call->window;
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];
    const float *dy = task->in[0];
    const int32_t *place = (const int32_t *)(const void *)task->in[1];
    float *dx = task->out[0];

    memset(dx, 0, task->samples * w->channels_in * in * sizeof(*dx));
    for (size_t plane = 0; plane < task->samples * w->channels_in; plane++) {
        for (size_t i = 0; i < out; i++)
            dx[place[i]] += dy[i];
        dx += in;
        dy += out;
        place += out;
    }
}

// Returns the factor of the sum over an output's window.
static float average_share(const struct cn_window *w, struct range rows, struct range cols)
{
    size_t count = w->count_pads ? (size_t)w->kernel[0] * w->kernel[1]
                                 : (rows.end - rows.first) * (cols.end - cols.first);

    return 1 / (float)count;
}

void cpu_average_pool(const struct cpu_task *task)
{
    const struct cn_window *w = &task->call->window;
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];
    const float *x = task->in[0];
    float *y = task->out[0];

    for (size_t plane = 0; plane < task->samples * w->channels_in; plane++, x += in)
        for (size_t i = 0; i < out; i++) {
            size_t oy = i / w->out[1], ox = i % w->out[1];
            struct range rows = inside(w, 0, oy), cols = inside(w, 1, ox);
            float sum = 0;

            for (size_t ky = rows.first; ky < rows.end; ky++)
                for (size_t kx = cols.first; kx < cols.end; kx++)
                    sum += x[place_of(w, oy, ox, ky, kx)];
            *y++ = sum * average_share(w, rows, cols);
        }
}

void cpu_average_pool_grad(const struct cpu_task *task)
{
    const struct cn_window *w = &task->call->window;
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];
    const float *dy = task->in[0];
    float *dx = task->out[0];

    memset(dx, 0, task->samples * w->channels_in * in * sizeof(*dx));
    for (size_t plane = 0; plane < task->samples * w->channels_in; plane++, dx += in)
        for (size_t i = 0; i < out; i++) {
            size_t oy = i / w->out[1], ox = i % w->out[1];
            struct range rows = inside(w, 0, oy), cols = inside(w, 1, ox);
            float share = *dy++ * average_share(w, rows, cols);

            for (size_t ky = rows.first; ky < rows.end; ky++)
                for (size_t kx = cols.first; kx < cols.end; kx++)
                    dx[place_of(w, oy, ox, ky, kx)] += share;
        }
}
