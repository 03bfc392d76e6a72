// Pooling and resizing of planes. A thread computes one output. In a gradient, each input collects
// its terms, so that no two threads add to one word.
#include "ports/cuda/kernels/kernel_common.h"

// The sample, channel and position of an output or input.
struct spot {
    uint32_t n, channel, y, x;
};

// Returns the position of element i, counted over all samples.
DEVICE struct spot spot_of(uint32_t i, uint32_t channels, const uint32_t extent[2])
{
    struct spot at;

    at.x = i % extent[1];
    i /= extent[1];
    at.y = i % extent[0];
    i /= extent[0];
    at.channel = i % channels;
    at.n = i / channels;
    return at;
}

// Returns the first word of the plane; stride 0 means that samples follow one another.
DEVICE size_t plane_of(const struct spot *at, uint32_t channels, const uint32_t extent[2],
                       size_t stride)
{
    return at->n * (stride ? stride : (size_t)channels * extent[0] * extent[1]) +
           (size_t)at->channel * extent[0] * extent[1];
}

// Finds where tap k of output o lies along an axis. Returns false outside of the input.
DEVICE bool tap_inside(const struct cn_window *w, int axis, uint32_t o, uint32_t k, uint32_t *at)
{
    uint32_t place = o * w->stride[axis] + k * w->dilation[axis];

    *at = place - w->pad[axis];
    return place >= w->pad[axis] && *at < w->in[axis];
}

// Outputs whose windows may have a tap at an input: from first to end - 1 along an axis.
struct reach {
    uint32_t first, end;
};

DEVICE struct reach reach_of(const struct cn_window *w, int axis, uint32_t i)
{
    uint32_t place = i + w->pad[axis], window = (w->kernel[axis] - 1) * w->dilation[axis];
    struct reach reach = {0, place / w->stride[axis] + 1};

    if (place > window)
        reach.first = (place - window + w->stride[axis] - 1) / w->stride[axis];
    if (reach.end > w->out[axis])
        reach.end = w->out[axis];
    return reach;
}

// Returns whether a tap of output o, which reach_of found, lies at input i: with a dilation, taps
// lie apart.
DEVICE bool has_tap(const struct cn_window *w, int axis, uint32_t i, uint32_t o)
{
    return w->dilation[axis] == 1 ||
           (i + w->pad[axis] - o * w->stride[axis]) % w->dilation[axis] == 0;
}

// A NaN wins, so that it reaches the loss.
KERNEL(max_pool)
{
    const struct cn_window *w = &a.call.window;
    uint32_t channels = w->channels_in, total = channels * w->out[0] * w->out[1] * a.samples;

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        struct spot at = spot_of(i, channels, w->out);
        const float *x = a.in[0] + plane_of(&at, channels, w->in, a.call.in[0].stride);
        uint32_t best = 0, row, col, out = at.y * w->out[1] + at.x;
        bool found = false;

        for (uint32_t ky = 0; ky < w->kernel[0]; ky++)
            for (uint32_t kx = 0; kx < w->kernel[1]; kx++) {
                if (!tap_inside(w, 0, at.y, ky, &row) || !tap_inside(w, 1, at.x, kx, &col))
                    continue;
                row = row * w->in[1] + col;
                if (!found || x[row] > x[best] || x[row] != x[row])
                    best = row;
                found = true;
            }
        a.out[0][plane_of(&at, channels, w->out, a.call.out[0].stride) + out] = x[best];
        a.out[1][plane_of(&at, channels, w->out, a.call.out[1].stride) + out] = bits_float(best);
    }
}

KERNEL(max_pool_grad)
{
    const struct cn_window *w = &a.call.window;
    uint32_t channels = w->channels_in, total = channels * w->in[0] * w->in[1] * a.samples;
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        struct spot at = spot_of(i, channels, w->in);
        const float *dy = a.in[0] + plane_of(&at, channels, w->out, a.call.in[0].stride);
        const float *place = a.in[1] + plane_of(&at, channels, w->out, a.call.in[1].stride);
        struct reach rows = reach_of(w, 0, at.y), cols = reach_of(w, 1, at.x);
        uint32_t self = at.y * w->in[1] + at.x;
        float sum = 0;

        for (uint32_t row = rows.first; row < rows.end; row++)
            for (uint32_t col = cols.first; col < cols.end; col++)
                if (float_bits(place[row * w->out[1] + col]) == self)
                    sum += dy[row * w->out[1] + col];
        put(&a.out[0][plane_of(&at, channels, w->in, a.call.out[0].stride) + self], sum, add);
    }
}

// Returns the number of taps of output o that lie inside the input, along an axis.
DEVICE uint32_t taps_inside(const struct cn_window *w, int axis, uint32_t o)
{
    uint32_t begin = o * w->stride[axis];
    uint32_t reach = begin + (w->kernel[axis] - 1) * w->dilation[axis];

    uint32_t count = 0, at;

    if (begin >= w->pad[axis] && reach - w->pad[axis] < w->in[axis])
        return w->kernel[axis];
    for (uint32_t k = 0; k < w->kernel[axis]; k++)
        count += tap_inside(w, axis, o, k, &at);
    return count;
}

// Returns the factor of the sum over an output's window.
DEVICE float average_share(const struct cn_window *w, uint32_t y, uint32_t x)
{
    uint32_t count =
        w->count_pads ? w->kernel[0] * w->kernel[1] : taps_inside(w, 0, y) * taps_inside(w, 1, x);

    return 1 / (float)count;
}

KERNEL(average_pool)
{
    const struct cn_window *w = &a.call.window;
    uint32_t channels = w->channels_in, total = channels * w->out[0] * w->out[1] * a.samples;
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        struct spot at = spot_of(i, channels, w->out);
        const float *x = a.in[0] + plane_of(&at, channels, w->in, a.call.in[0].stride);
        float sum = 0;
        uint32_t row, col;

        for (uint32_t ky = 0; ky < w->kernel[0]; ky++)
            for (uint32_t kx = 0; kx < w->kernel[1]; kx++)
                if (tap_inside(w, 0, at.y, ky, &row) && tap_inside(w, 1, at.x, kx, &col))
                    sum += x[row * w->in[1] + col];
        put(&a.out[0]
                  [plane_of(&at, channels, w->out, a.call.out[0].stride) + at.y * w->out[1] + at.x],
            sum * average_share(w, at.y, at.x), add);
    }
}

KERNEL(average_pool_grad)
{
    const struct cn_window *w = &a.call.window;
    uint32_t channels = w->channels_in, total = channels * w->in[0] * w->in[1] * a.samples;
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        struct spot at = spot_of(i, channels, w->in);
        const float *dy = a.in[0] + plane_of(&at, channels, w->out, a.call.in[0].stride);
        struct reach rows = reach_of(w, 0, at.y), cols = reach_of(w, 1, at.x);
        float sum = 0;

        for (uint32_t row = rows.first; row < rows.end; row++)
            for (uint32_t col = cols.first; col < cols.end; col++)
                if (has_tap(w, 0, at.y, row) && has_tap(w, 1, at.x, col))
                    sum += dy[row * w->out[1] + col] * average_share(w, row, col);
        put(&a.out[0]
                  [plane_of(&at, channels, w->in, a.call.out[0].stride) + at.y * w->in[1] + at.x],
            sum, add);
    }
}

// The two inputs of an output along an axis, and their shares.
struct blend {
    uint32_t low, high;
    float of_low, of_high;
};

// Returns the position in the input of output number out.
DEVICE float resize_source(const struct cn_resize *op, int axis, uint32_t out)
{
    switch (op->place) {
    case CN_RESIZE_ASYMMETRIC:
        return (float)out / op->scale[axis];
    case CN_RESIZE_HALF_PIXEL:
        return ((float)out + 0.5f) / op->scale[axis] - 0.5f;
    default: // CN_RESIZE_ALIGN_CORNERS
        return op->out[axis] > 1
                   ? (float)out * (float)(op->in[axis] - 1) / (float)(op->out[axis] - 1)
                   : 0;
    }
}

DEVICE uint32_t clamp_index(float index, uint32_t extent)
{
    return index < 0 ? 0 : index >= (float)extent ? extent - 1 : (uint32_t)index;
}

DEVICE struct blend blend_of(const struct cn_resize *op, int axis, uint32_t out)
{
    float source = resize_source(op, axis, out);
    float low = floorf(source);
    struct blend blend;

    if (op->kind == CN_RESIZE_NEAREST) {
        blend.low = clamp_index(op->round ? ceilf(source - 0.5f) : low, op->in[axis]);
        blend.high = blend.low;
        blend.of_high = 0;
    } else {
        blend.low = clamp_index(low, op->in[axis]);
        blend.high = clamp_index(low + 1, op->in[axis]);
        blend.of_high = source - low;
    }
    blend.of_low = 1 - blend.of_high;
    return blend;
}

KERNEL(resize)
{
    const struct cn_resize *op = &a.call.resize;
    uint32_t total = op->channels * op->out[0] * op->out[1] * a.samples;
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        struct spot at = spot_of(i, op->channels, op->out);
        const float *x = a.in[0] + plane_of(&at, op->channels, op->in, a.call.in[0].stride);
        struct blend rows = blend_of(op, 0, at.y), cols = blend_of(op, 1, at.x);
        const float *upper = x + rows.low * op->in[1], *lower = x + rows.high * op->in[1];
        float top = cols.of_low * upper[cols.low] + cols.of_high * upper[cols.high];
        float bottom = cols.of_low * lower[cols.low] + cols.of_high * lower[cols.high];
        float value = op->kind == CN_RESIZE_NEAREST ? upper[cols.low]
                                                    : rows.of_low * top + rows.of_high * bottom;

        put(&a.out[0][plane_of(&at, op->channels, op->out, a.call.out[0].stride) +
                      at.y * op->out[1] + at.x],
            value, add);
    }
}

// Returns the share of input at in output out, along an axis.
DEVICE float blend_share(const struct cn_resize *op, int axis, uint32_t out, uint32_t at)
{
    struct blend blend = blend_of(op, axis, out);

    return (blend.low == at ? blend.of_low : 0) + (blend.high == at ? blend.of_high : 0);
}

// Finds the outputs that input at may have a share in. Positions grow with out, so these outputs
// are neighbours. The first guess is widened by the effect of rounding and of both neighbours.
DEVICE void blend_range(const struct cn_resize *op, int axis, uint32_t at, uint32_t *from,
                        uint32_t *to)
{
    float slope = resize_source(op, axis, 1) - resize_source(op, axis, 0);
    float reach = slope > 0 ? 2 / slope + 2 : (float)op->out[axis];
    float middle = slope > 0 ? ((float)at - resize_source(op, axis, 0)) / slope : 0;

    *from = clamp_index(middle - reach, op->out[axis]);
    *to = clamp_index(middle + reach, op->out[axis]) + 1;
    if (at == 0)
        *from = 0;
    if (at == op->in[axis] - 1)
        *to = op->out[axis];
}

KERNEL(resize_grad)
{
    const struct cn_resize *op = &a.call.resize;
    uint32_t total = op->channels * op->in[0] * op->in[1] * a.samples;
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        struct spot at = spot_of(i, op->channels, op->in);
        const float *dy = a.in[0] + plane_of(&at, op->channels, op->out, a.call.in[0].stride);
        uint32_t top, bottom, left, right;
        float sum = 0;

        blend_range(op, 0, at.y, &top, &bottom);
        blend_range(op, 1, at.x, &left, &right);
        for (uint32_t y = top; y < bottom; y++) {
            float of_row = blend_share(op, 0, y, at.y);

            if (of_row == 0)
                continue;
            for (uint32_t x = left; x < right; x++)
                sum += of_row * blend_share(op, 1, x, at.x) * dy[y * op->out[1] + x];
        }
        put(&a.out[0][plane_of(&at, op->channels, op->in, a.call.out[0].stride) + at.y * op->in[1] +
                      at.x],
            sum, add);
    }
}
