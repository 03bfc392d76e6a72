// plane.h - planes laid out so that every convolution has stride 1 over flat rows.
//
// The planes of one channel of several samples are copied one after the other with their padding,
// and split by the phases of the stride. With stride s, word (r, q) of phase (py, px) is element
// (r * s + py, q * s + px) of the padded plane. A tap of the kernel is then one constant offset.
// Outputs p = (sample * rows + y) * pitch + x are computed for all p in one run; those beyond the
// output's width and height are junk and are dropped.
//
// With stride 1, padding is shared. The zeros to the left of a row are also the zeros to the right
// of the row above; the zeros above a sample are also the zeros below the sample before.
#pragma once

#include <stdint.h>
#include <string.h>

#include "ports/cpu/tile.h"
#include "runtime/port/compute.h"

// Words beyond the last output that kernels may read, and may overwrite with junk.
#define PLANE_SLACK (8 * VECTOR)

// The layout of one channel of several samples. Arrays of two are indexed by axis: rows, columns.
struct planes {
    size_t stride[2], pad[2], in[2], out[2];
    size_t samples;
    size_t rows, pitch; // rows of a sample in a phase; words from row to row
    size_t flat;        // words of all samples in a phase
    size_t phase;       // flat, and the zeros and slack that taps reach
    size_t channel;     // words of all phases of one channel
    bool used[2][2];    // [axis][phase], first two phases: whether any tap reads it
};

// Returns how many words of a phase the last tap lies beyond the first.
static inline size_t plane_reach(const struct cn_window *w, int axis)
{
    return (w->kernel[axis] - 1) * (size_t)w->dilation[axis] / w->stride[axis];
}

// Returns the words from one row to the next (axis 1), or the rows from one sample to the next
// (axis 0).
static inline size_t plane_extent(const struct cn_window *w, int axis)
{
    size_t reach = plane_reach(w, axis);
    size_t whole = w->out[axis] + reach, before = (size_t)w->pad[axis] + w->in[axis], extent;

    if (w->stride[0] != 1 || w->stride[1] != 1)
        return whole;
    extent = whole > before + w->pad[axis] ? whole - w->pad[axis] : before;
    return extent > w->out[axis] ? extent : w->out[axis];
}

// Returns the layout for a window and `samples` samples.
static inline struct planes planes_of(const struct cn_window *w, size_t samples)
{
    struct planes planes = {.samples = samples};

    for (int axis = 0; axis < 2; axis++) {
        planes.stride[axis] = w->stride[axis];
        planes.pad[axis] = w->pad[axis];
        planes.in[axis] = w->in[axis];
        planes.out[axis] = w->out[axis];
        for (size_t phase = 0; phase < 2; phase++)
            for (size_t k = 0; k < w->kernel[axis] && !planes.used[axis][phase]; k++)
                planes.used[axis][phase] = k * w->dilation[axis] % w->stride[axis] == phase;
    }
    planes.rows = plane_extent(w, 0);
    planes.pitch = plane_extent(w, 1);
    planes.flat = samples * planes.rows * planes.pitch;
    planes.phase = planes.flat + plane_reach(w, 0) * planes.pitch + plane_reach(w, 1) + PLANE_SLACK;
    planes.channel = planes.phase * planes.stride[0] * planes.stride[1];
    return planes;
}

// Returns the offset, from the first word of a channel, at which tap (y, x) of the kernel reads for
// output 0.
static inline size_t plane_tap(const struct planes *planes, const struct cn_window *window,
                               size_t y, size_t x)
{
    size_t dy = y * window->dilation[0], dx = x * window->dilation[1];
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a stride is at least 1.
    size_t phase = dy % planes->stride[0] * planes->stride[1] + dx % planes->stride[1];

    return phase * planes->phase + dy / planes->stride[0] * planes->pitch + dx / planes->stride[1];
}

// The part of a row of a phase that holds elements: word q in [first, end) is element
// q * stride + phase - pad.
struct plane_span {
    size_t first, end;
};

// Returns the span of a phase along an axis, cut off at limit.
static inline struct plane_span plane_span(const struct planes *planes, int axis, size_t phase,
                                           size_t limit)
{
    size_t stride = planes->stride[axis], pad = planes->pad[axis], width = planes->in[axis];
    struct plane_span span = {pad > phase ? (pad - phase + stride - 1) / stride : 0,
                              width + pad > phase ? (width + pad - phase + stride - 1) / stride
                                                  : 0};

    span.first = span.first < limit ? span.first : limit;
    span.end = span.end < limit ? span.end : limit;
    span.end = span.end > span.first ? span.end : span.first;
    return span;
}

// Returns whether no tap reads this phase.
static inline bool plane_unused(const struct planes *planes, size_t py, size_t px)
{
    return (py < 2 && !planes->used[0][py]) || (px < 2 && !planes->used[1][px]);
}

// Copies one phase of one sample.
static inline void plane_copy_phase(const struct planes *planes, float *to, const float *from,
                                    size_t py, size_t px)
{
    struct plane_span rows = plane_span(planes, 0, py, planes->rows);
    struct plane_span cols = plane_span(planes, 1, px, planes->pitch);
    size_t stride = planes->stride[1];
    size_t count = cols.end - cols.first;

    memset(to, 0, rows.first * planes->pitch * sizeof(*to));
    for (size_t r = rows.first; r < rows.end; r++) {
        float *row = to + r * planes->pitch;
        const float *source = from + (r * planes->stride[0] + py - planes->pad[0]) * planes->in[1] +
                              cols.first * stride + px - planes->pad[1];

        for (size_t q = 0; q < cols.first; q++)
            row[q] = 0;
        if (stride == 1)
            tile_copy(row + cols.first, source, count);
        else if (stride == 2)
            tile_copy_even(row + cols.first, source, count);
        else
            for (size_t q = 0; q < count; q++)
                row[cols.first + q] = source[q * stride];
        for (size_t q = cols.end; q < planes->pitch; q++)
            row[q] = 0;
    }
    memset(to + rows.end * planes->pitch, 0,
           (planes->rows - rows.end) * planes->pitch * sizeof(*to));
}

// Copies one channel of all samples, which lie `sample` words apart, into the planes.
static inline void plane_copy(const struct planes *planes, float *to, const float *from,
                              size_t sample)
{
    size_t words = planes->rows * planes->pitch;

    for (size_t py = 0; py < planes->stride[0]; py++)
        for (size_t px = 0; px < planes->stride[1]; px++, to += planes->phase) {
            if (plane_unused(planes, py, px))
                continue;
            for (size_t n = 0; n < planes->samples; n++)
                plane_copy_phase(planes, to + n * words, from + n * sample, py, px);
            memset(to + planes->flat, 0, (planes->phase - planes->flat) * sizeof(*to));
        }
}

// Copies each element of one channel of all samples back from the planes.
static inline void plane_restore(const struct planes *planes, float *to, const float *from,
                                 size_t sample)
{
    size_t words = planes->rows * planes->pitch;

    for (size_t n = 0; n < planes->samples; n++)
        for (size_t y = 0; y < planes->in[0]; y++) {
            float *row = to + n * sample + y * planes->in[1];
            size_t r = (y + planes->pad[0]) / planes->stride[0];
            size_t py = (y + planes->pad[0]) % planes->stride[0];

            memset(row, 0, planes->in[1] * sizeof(*row));
            for (size_t px = 0; r < planes->rows && px < planes->stride[1]; px++) {
                struct plane_span cols = plane_span(planes, 1, px, planes->pitch);
                const float *source = from + (py * planes->stride[1] + px) * planes->phase +
                                      n * words + r * planes->pitch;

                if (planes->stride[1] == 1)
                    tile_copy(row + cols.first - planes->pad[1], source + cols.first,
                              cols.end - cols.first);
                else
                    for (size_t q = cols.first; q < cols.end; q++)
                        row[q * planes->stride[1] + px - planes->pad[1]] = source[q];
            }
        }
}

// Copies outputs of one channel of all samples to their places p. Writes zeros to the junk places,
// and to slack words after them.
static inline void plane_spread(const struct planes *planes, float *to, const float *from,
                                size_t sample, size_t slack)
{
    for (size_t n = 0; n < planes->samples; n++) {
        float *row = to + n * planes->rows * planes->pitch;

        for (size_t y = 0; y < planes->out[0]; y++, row += planes->pitch) {
            tile_copy(row, from + n * sample + y * planes->out[1], planes->out[1]);
            for (size_t q = planes->out[1]; q < planes->pitch; q++)
                row[q] = 0;
        }
        memset(row, 0, (planes->rows - planes->out[0]) * planes->pitch * sizeof(*row));
    }
    memset(to + planes->flat, 0, slack * sizeof(*to));
}

// Copies the outputs without the junk, after adding the bias and, if relu is set, applying ReLU.
static inline void plane_gather(const struct planes *planes, float *to, const float *from,
                                size_t sample, float bias, bool relu)
{
    for (size_t n = 0; n < planes->samples; n++)
        for (size_t y = 0; y < planes->out[0]; y++) {
            const float *row = from + (n * planes->rows + y) * planes->pitch;
            float *out = to + n * sample + y * planes->out[1];

            if (relu)
                for (size_t q = 0; q < planes->out[1]; q++)
                    out[q] = row[q] + bias < 0 ? 0 : row[q] + bias;
            else
                for (size_t q = 0; q < planes->out[1]; q++)
                    out[q] = row[q] + bias;
        }
}
