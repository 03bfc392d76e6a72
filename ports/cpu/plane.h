// plane.h - planes laid out so that every convolution is a stride-1 convolution over flat rows.
//
// A plane is copied with its padding, split by the phases of the stride: with stride s, word (r, q)
// of phase (py, px) is element (r * s + py, q * s + px) of the padded plane. A tap of the kernel is
// then one constant offset, and outputs p = y * pitch + x for all p are computed in one run; the
// columns of p beyond the output's width are junk and are dropped.
#pragma once

#include <stdint.h>
#include <string.h>

#include "ports/cpu/tile.h"
#include "runtime/port/compute.h"

struct planes {
    size_t stride[2]; // phases
    size_t rows, pitch;
    size_t phase;   // words of one phase
    size_t channel; // words of all phases of one channel
};

static inline size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static inline struct planes planes_of(size_t rows, size_t pitch, const uint32_t stride[2])
{
    struct planes planes = {.stride = {stride[0], stride[1]}, .rows = rows, .pitch = pitch};

    planes.phase = rows * pitch;
    planes.channel = planes.phase * stride[0] * stride[1];
    return planes;
}

// One row of a phase: to[q] = from[q * stride + phase - pad], zero outside [0, width).
static inline void plane_row(float *to, size_t pitch, const float *from, size_t width,
                             size_t stride, size_t phase, size_t pad)
{
    // q * stride + phase >= pad, and q * stride + phase - pad < width.
    size_t first = pad > phase ? (pad - phase + stride - 1) / stride : 0;
    size_t end = width + pad > phase ? (width + pad - phase + stride - 1) / stride : 0;

    first = first < pitch ? first : pitch;
    end = end < pitch ? end : pitch;
    end = end > first ? end : first;
    for (size_t q = 0; q < first; q++)
        to[q] = 0;
    if (stride == 1)
        memcpy(to + first, from + first + phase - pad, (end - first) * sizeof(*to));
    else
        for (size_t q = first; q < end; q++)
            to[q] = from[q * stride + phase - pad];
    for (size_t q = end; q < pitch; q++)
        to[q] = 0;
}

// Copies one channel of height x width with pad rows and columns before it.
static inline void plane_copy(const struct planes *planes, float *to, const float *from,
                              const uint32_t extent[2], const size_t pad[2])
{
    for (size_t py = 0; py < planes->stride[0]; py++)
        for (size_t px = 0; px < planes->stride[1]; px++)
            for (size_t r = 0; r < planes->rows; r++, to += planes->pitch) {
                size_t y = r * planes->stride[0] + py;

                if (y < pad[0] || y - pad[0] >= extent[0])
                    memset(to, 0, planes->pitch * sizeof(*to));
                else
                    plane_row(to, planes->pitch, from + (y - pad[0]) * extent[1], extent[1],
                              planes->stride[1], px, pad[1]);
            }
}

// Where tap (y, x) of the kernel reads, from the first word of a channel, for output 0.
static inline size_t plane_tap(const struct planes *planes, const struct cn_window *window,
                               size_t y, size_t x)
{
    size_t dy = y * window->dilation[0], dx = x * window->dilation[1];
    size_t phase = dy % planes->stride[0] * planes->stride[1] + dx % planes->stride[1];

    return phase * planes->phase + dy / planes->stride[0] * planes->pitch + dx / planes->stride[1];
}
