// conv.h - four ways to convolve; conv.c chooses by the shape.
//
// - Flat (conv_flat.c): works on planes in flat rows and copies nothing for each tap. Best for few
//   channels and wide planes.
// - Columns (conv_columns.c): makes a matrix with a row for each tap and a column for each output,
//   then multiplies. Best for many channels, and for small planes, where flat rows would be mostly
//   padding.
// - Depthwise (conv_depthwise.c): for groups of one channel in and out.
// - Winograd (conv_winograd.c): 3x3 of stride 1 with fewer products. Best where there are enough
//   channels to pay for the transforms.
#pragma once

#include "ports/cpu/kernel.h"

// One call on one lane.
struct conv {
    const struct cn_window *window;
    size_t samples;
    size_t x_channel, y_channel; // words of a plane of x and of y
    size_t x_sample, y_sample;   // words of a sample
    size_t group_in, group_out;  // channels of a group
    size_t kernel;               // taps of one channel
    size_t taps;                 // taps of all input channels of a group
};

// Describes a convolution of `samples` samples.
static inline struct conv conv_of(const struct cn_window *w, size_t samples)
{
    struct conv conv = {.window = w, .samples = samples};

    conv.x_channel = (size_t)w->in[0] * w->in[1];
    conv.y_channel = (size_t)w->out[0] * w->out[1];
    conv.x_sample = w->channels_in * conv.x_channel;
    conv.y_sample = w->channels_out * conv.y_channel;
    conv.group_in = w->channels_in / w->groups;
    conv.group_out = w->channels_out / w->groups;
    conv.kernel = (size_t)w->kernel[0] * w->kernel[1];
    conv.taps = conv.group_in * conv.kernel;
    return conv;
}

#define conv_flat CPU_NAME(conv_flat)
#define conv_columns CPU_NAME(conv_columns)
#define conv_depthwise CPU_NAME(conv_depthwise)
#define conv_winograd CPU_NAME(conv_winograd)

// An implementation of convolution. workspace returns words for a lane. grad_weight adds to dw.
struct conv_way {
    void (*forward)(const struct conv *conv, const struct cpu_task *task);
    void (*grad_input)(const struct conv *conv, const struct cpu_task *task);
    void (*grad_weight)(const struct conv *conv, const struct cpu_task *task);
    size_t (*workspace)(const struct conv *conv, enum cn_op op);
};

extern const struct conv_way conv_flat, conv_columns, conv_depthwise, conv_winograd;
