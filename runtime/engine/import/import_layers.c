// Convolution and pooling.
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

#define EXTENT_MAX (1 << 24) // largest dimension of a window or image

// Checks a filter or bias: a weight, a value computed from weights only, or a known value.
static cn_err read_weight(struct cn_import_node *node, size_t input, uint32_t rank, uint32_t *out)
{
    const struct cn_value *value = cn_import_value(node, input);

    if (value->batched || value->transposed || value->rank != rank)
        return cn_import_refuse(node, "input %zu must be of rank %u, without samples", input, rank);
    for (uint32_t d = 0; d < rank; d++)
        if (value->dims[d] > EXTENT_MAX)
            return cn_import_refuse(node, "input %zu is too large", input);
    return cn_import_as_floats(node, node->in[input], out);
}

static bool from_samples(const struct cn_value *value)
{
    return (value->kind == CN_VALUE_ACTIVATION || value->kind == CN_VALUE_INPUT) && value->batched;
}

// Reads one attribute of a window: an element for each axis. A 1-D window keeps the default at
// index 0.
static cn_err read_extent(const struct cn_import_node *node, const char *name, uint32_t axes,
                          uint32_t extent[2])
{
    const struct cn_onnx_attribute *found = cn_onnx_attribute_find(node->node, name);

    if (!found)
        return CN_OK;
    if (found->count != axes)
        return cn_import_refuse(node, "'%s' has %zu elements, wanted %u", name, found->count, axes);
    for (uint32_t i = 0; i < axes; i++) {
        if (found->ints[i] < 1 || found->ints[i] > EXTENT_MAX)
            return cn_import_refuse(node, "'%s' holds %" PRId64, name, found->ints[i]);
        extent[2 - axes + i] = (uint32_t)found->ints[i];
    }
    return CN_OK;
}

// SAME_UPPER and SAME_LOWER: out = ceil(in / stride). If the total padding is odd, the larger half
// is at the end (SAME_UPPER) or at the start (SAME_LOWER).
static void same_pads(const struct cn_window *w, bool upper, int axis, uint64_t *before,
                      uint64_t *after)
{
    uint64_t out = ((uint64_t)w->in[axis] + w->stride[axis] - 1) / w->stride[axis];
    uint64_t reach = (uint64_t)(w->kernel[axis] - 1) * w->dilation[axis] + 1;
    uint64_t needed = (out - 1) * w->stride[axis] + reach;
    uint64_t total = needed > w->in[axis] ? needed - w->in[axis] : 0;

    *before = upper ? total / 2 : total - total / 2;
    *after = total - *before;
}

static cn_err read_pads(const struct cn_import_node *node, const struct cn_window *w, uint32_t axes,
                        uint64_t before[2], uint64_t after[2])
{
    const struct cn_onnx_attribute *mode = cn_onnx_attribute_find(node->node, "auto_pad");
    const struct cn_onnx_attribute *pads = cn_onnx_attribute_find(node->node, "pads");

    if (mode && (cn_text_equal(mode->s, "SAME_UPPER") || cn_text_equal(mode->s, "SAME_LOWER"))) {
        for (uint32_t i = 2 - axes; i < 2; i++)
            same_pads(w, cn_text_equal(mode->s, "SAME_UPPER"), (int)i, &before[i], &after[i]);
        return CN_OK;
    }
    if (mode && !cn_text_equal(mode->s, "NOTSET") && !cn_text_equal(mode->s, "VALID"))
        return cn_import_refuse(node, "auto_pad '%.*s' is not supported", (int)mode->s.size,
                                mode->s.data);
    if (!pads || (mode && cn_text_equal(mode->s, "VALID")))
        return CN_OK;
    if (pads->count != 2 * (size_t)axes)
        return cn_import_refuse(node, "'pads' has %zu elements, wanted %u", pads->count, 2 * axes);
    for (uint32_t i = 0; i < axes; i++) {
        if (pads->ints[i] < 0 || pads->ints[i] > EXTENT_MAX || pads->ints[axes + i] < 0 ||
            pads->ints[axes + i] > EXTENT_MAX)
            return cn_import_refuse(node, "a pad is outside 0 to %d", EXTENT_MAX);
        before[2 - axes + i] = (uint64_t)pads->ints[i];
        after[2 - axes + i] = (uint64_t)pads->ints[axes + i];
    }
    return CN_OK;
}

static cn_err fill_out(const struct cn_import_node *node, struct cn_window *w,
                       const uint64_t before[2], const uint64_t after[2])
{
    bool ceil_mode = cn_import_int(node, "ceil_mode", 0) != 0;

    for (int i = 0; i < 2; i++) {
        uint64_t reach = (uint64_t)(w->kernel[i] - 1) * w->dilation[i] + 1;
        uint64_t padded = w->in[i] + before[i] + after[i];
        uint64_t steps;

        if (padded < reach)
            return cn_import_refuse(
                node, "the window of %" PRIu64 " is larger than the padded input of %" PRIu64,
                reach, padded);
        steps = padded - reach;
        w->out[i] = (uint32_t)(steps / w->stride[i] + 1);
        // A last, partial window counts if it starts inside the input or the padding before it.
        if (ceil_mode && steps % w->stride[i] &&
            (uint64_t)w->out[i] * w->stride[i] < w->in[i] + before[i])
            w->out[i]++;
        w->pad[i] = (uint32_t)before[i];
    }
    return CN_OK;
}

// Reads the planes of input 0, and sets a window of one element unless a kernel is set.
static cn_err read_geometry(const struct cn_import_node *node, struct cn_window *w)
{
    const struct cn_value *x = cn_import_value(node, 0);
    uint32_t axes = x->rank > 2 ? x->rank - 2 : 0;

    if (!from_samples(x) || axes < 1 || axes > 2)
        return cn_import_refuse(node, "the input must be samples of rank 3 or 4, has rank %u",
                                x->rank);
    for (uint32_t d = 1; d < x->rank; d++)
        if (x->dims[d] > EXTENT_MAX)
            return cn_import_refuse(node, "dimension %u is %" PRIu64, d, x->dims[d]);
    w->channels_in = (uint32_t)x->dims[1];
    for (uint32_t i = 0; i < 2; i++) {
        w->in[i] = i >= 2 - axes ? (uint32_t)x->dims[i + x->rank - 2] : 1;
        w->kernel[i] = w->kernel[i] ? w->kernel[i] : 1;
        w->stride[i] = 1;
        w->dilation[i] = 1;
    }
    return CN_OK;
}

// Reads the planes of input 0 and the attributes of a window over them.
static cn_err read_attributes(const struct cn_import_node *node, struct cn_window *w,
                              uint64_t before[2], uint64_t after[2])
{
    uint32_t axes = cn_import_value(node, 0)->rank - 2;
    cn_err err = read_geometry(node, w);

    if (!err)
        err = read_extent(node, "kernel_shape", axes, w->kernel);
    if (!err)
        err = read_extent(node, "strides", axes, w->stride);
    if (!err)
        err = read_extent(node, "dilations", axes, w->dilation);
    if (!err)
        err = read_pads(node, w, axes, before, after);
    return err;
}

// Reads the whole geometry of a convolution or pooling of input 0.
static cn_err read_window(const struct cn_import_node *node, struct cn_window *w)
{
    const struct cn_value *x = cn_import_value(node, 0);
    uint64_t before[2] = {0}, after[2] = {0};
    cn_err err = read_attributes(node, w, before, after);

    for (int i = 0; i < 2; i++) {
        before[i] += x->pad_before[i];
        after[i] += x->pad_after[i];
    }
    return err ? err : fill_out(node, w, before, after);
}

// Defines the output [batch, channels_out, ...] of a window.
static cn_err window_output(struct cn_import_node *node, const struct cn_window *w)
{
    const struct cn_value *x = cn_import_value(node, 0);
    uint64_t dims[4] = {x->dims[0], w->channels_out, w->out[0], w->out[1]};

    if (x->rank == 3)
        dims[2] = w->out[1];
    return cn_import_output(node, x->rank, dims);
}

// Takes the filter of a convolution or a transposed convolution. A filter of one axis gets a height
// of 1.
static cn_err take_kernel(struct cn_import_node *node, struct cn_node *conv)
{
    uint32_t rank = cn_import_value(node, 0)->rank;
    const struct cn_value *weight;
    cn_err err;

    if (rank < 3 || rank > 4)
        return cn_import_refuse(node, "the input must be of rank 3 or 4");
    err = read_weight(node, 1, rank, &conv->in[1]);
    if (err)
        return err;
    weight = cn_import_value(node, 1);
    conv->call.window.kernel[0] = rank == 4 ? (uint32_t)weight->dims[2] : 1;
    conv->call.window.kernel[1] = (uint32_t)weight->dims[rank - 1];
    return CN_OK;
}

cn_err cn_import_conv(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0), *weight;
    struct cn_node conv = cn_graph_node(CN_OP_CONV);
    struct cn_window *w = &conv.call.window;
    int64_t groups = cn_import_int(node, "group", 1);
    cn_err err;

    if (x->rank == 5 && from_samples(x))
        return cn_import_conv_volume(node);
    err = take_kernel(node, &conv);
    if (err)
        return err;
    weight = cn_import_value(node, 1);
    w->channels_out = (uint32_t)weight->dims[0];
    err = read_window(node, w);
    if (err)
        return err;
    if (groups < 1 || w->channels_in % groups || w->channels_out % groups ||
        weight->dims[1] != w->channels_in / (uint64_t)groups ||
        weight->words != weight->dims[0] * weight->dims[1] * w->kernel[0] * w->kernel[1])
        return cn_import_refuse(node, "%u channels, %" PRId64 " groups and the filter do not agree",
                                w->channels_in, groups);
    w->groups = (uint32_t)groups;
    if (cn_import_has(node, 2) && cn_import_value(node, 2)->words != w->channels_out)
        return cn_import_refuse(node, "the bias must have %u elements", w->channels_out);
    if (cn_import_has(node, 2))
        err = read_weight(node, 2, 1, &conv.in[2]);
    if (!err)
        err = window_output(node, w);
    conv.in[0] = node->in[0];
    conv.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &conv);
}

// Fills in the convolution whose input gradient is this transposed convolution. It goes from the
// result's planes, w->in, to those of input 0, w->out.
static cn_err transposed_window(const struct cn_import_node *node, struct cn_window *w)
{
    const struct cn_value *x = cn_import_value(node, 0);
    const struct cn_onnx_attribute *extra = cn_onnx_attribute_find(node->node, "output_padding");
    uint64_t before[2] = {0}, after[2] = {0};
    uint32_t axes = x->rank - 2;
    cn_err err = read_attributes(node, w, before, after);

    if (err)
        return err;
    if (cn_onnx_attribute_find(node->node, "output_shape") || (extra && extra->count != axes))
        return cn_import_refuse(
            node, "output_shape is not supported, nor output_padding of another rank");
    for (uint32_t i = 0; i < 2; i++) {
        int64_t added = extra && i >= 2 - axes ? extra->ints[i + axes - 2] : 0;
        int64_t size = (int64_t)(w->in[i] - 1) * w->stride[i] + added +
                       (int64_t)(w->kernel[i] - 1) * w->dilation[i] + 1 -
                       (int64_t)(before[i] + after[i]);

        if (added < 0 || added > EXTENT_MAX || size < 1 || size > EXTENT_MAX)
            return cn_import_refuse(node, "the result would have %" PRId64 " elements in an axis",
                                    size);
        w->out[i] = w->in[i];
        w->in[i] = (uint32_t)size;
        w->pad[i] = (uint32_t)before[i];
    }
    return CN_OK;
}

// Adds input 2, a number for each channel, to the node's output.
static cn_err add_channel_bias(struct cn_import_node *node)
{
    struct cn_value bias;
    uint32_t view;
    cn_err err;

    if (!cn_import_has(node, 2))
        return CN_OK;
    bias = *cn_import_value(node, 2);
    if (bias.batched || bias.rank != 1 || bias.dims[0] != node->graph->values[node->out].dims[1])
        return cn_import_refuse(node, "the bias must have an element for each channel");
    for (bias.rank = 1; bias.rank < cn_import_value(node, 0)->rank - 1; bias.rank++)
        bias.dims[bias.rank] = 1;
    err = cn_graph_add_value(node->graph, &bias, &view);
    return err ? err : cn_import_emit_combine(node, CN_COMBINE_ADD, node->out, view, &node->out);
}

cn_err cn_import_conv_transpose(struct cn_import_node *node)
{
    const struct cn_value *x, *weight;
    struct cn_node conv = cn_graph_node(CN_OP_CONV_GRAD_INPUT);
    struct cn_window *w = &conv.call.window;
    int64_t groups = cn_import_int(node, "group", 1);
    uint64_t dims[4];
    cn_err err;

    err = take_kernel(node, &conv);
    if (!err)
        err = transposed_window(node, w);
    if (err)
        return err;
    x = cn_import_value(node, 0);
    weight = cn_import_value(node, 1);
    if (groups < 1 || x->dims[1] % (uint64_t)groups || weight->dims[0] != x->dims[1] ||
        weight->words != weight->dims[0] * weight->dims[1] * w->kernel[0] * w->kernel[1] ||
        weight->dims[1] * (uint64_t)groups > EXTENT_MAX)
        return cn_import_refuse(node, "%u channels, %" PRId64 " groups and the filter do not agree",
                                w->channels_in, groups);
    w->channels_out = (uint32_t)x->dims[1];
    w->channels_in = (uint32_t)(weight->dims[1] * (uint64_t)groups);
    w->groups = (uint32_t)groups;
    memcpy(dims, (uint64_t[]){x->dims[0], w->channels_in, w->in[0], w->in[1]}, sizeof(dims));
    if (x->rank == 3)
        dims[2] = w->in[1];
    err = cn_import_output(node, x->rank, dims);
    if (err)
        return err;
    conv.in[0] = node->in[0];
    conv.out[0] = node->out;
    err = cn_graph_add_node(node->graph, &conv);
    return err ? err : add_channel_bias(node);
}

static cn_err emit_pool(struct cn_import_node *node, struct cn_node *pool)
{
    struct cn_value place;
    cn_err err = window_output(node, &pool->call.window);

    if (err)
        return err;
    pool->in[0] = node->in[0];
    pool->out[0] = node->out;
    if (pool->call.op == CN_OP_MAX_POOL) {
        place = node->graph->values[node->out];
        place.root = CN_GRAPH_NONE;
        err = cn_graph_add_value(node->graph, &place, &pool->out[1]);
        if (err)
            return err;
    }
    return cn_graph_add_node(node->graph, pool);
}

// Returns whether every window covers at least one element of the input.
static bool windows_touch_input(const struct cn_window *w)
{
    for (int i = 0; i < 2; i++) {
        uint64_t reach = (uint64_t)(w->kernel[i] - 1) * w->dilation[i];

        if (w->pad[i] > reach || (w->dilation[i] > 1 && w->pad[i]) ||
            (uint64_t)(w->out[i] - 1) * w->stride[i] >= (uint64_t)w->in[i] + w->pad[i])
            return false;
    }
    return true;
}

// Returns whether the node has padding of its own.
static bool has_pads(const struct cn_import_node *node)
{
    const struct cn_onnx_attribute *pads = cn_onnx_attribute_find(node->node, "pads");

    for (size_t i = 0; pads && i < pads->count; i++)
        if (pads->ints[i])
            return true;
    return false;
}

cn_err cn_import_pool(struct cn_import_node *node)
{
    bool average = cn_text_equal(node->node->op, "AveragePool");
    struct cn_node pool = cn_graph_node(average ? CN_OP_AVERAGE_POOL : CN_OP_MAX_POOL);
    struct cn_window *w = &pool.call.window;
    cn_err err;

    if (cn_import_value(node, 0)->rank == 5 && from_samples(cn_import_value(node, 0)))
        return cn_import_pool_volume(node);
    err = read_window(node, w);
    if (err)
        return err;
    w->channels_out = w->channels_in;
    w->groups = 1;
    if (!average && cn_import_value(node, 0)->padded)
        return cn_import_refuse(node, "zeros padded before a maximum are not supported");
    if (cn_import_value(node, 0)->padded && has_pads(node))
        return cn_import_refuse(node, "padding of two kinds is not supported");
    w->count_pads =
        cn_import_value(node, 0)->padded || cn_import_int(node, "count_include_pad", 0) != 0;
    if (!windows_touch_input(w))
        return cn_import_refuse(node, "a window lies outside the input");
    // Elements after the padding, in a last partial window, never count.
    w->count_pads = w->count_pads && (cn_import_value(node, 0)->padded || has_pads(node));
    if (w->count_pads && cn_import_int(node, "ceil_mode", 0))
        return cn_import_refuse(node, "ceil_mode with count_include_pad is not supported");
    if (node->node->output_count > 1 && node->node->outputs[1].size)
        return cn_import_refuse(node, "the indices of the largest elements are not supported");
    return emit_pool(node, &pool);
}

// Averages every plane to one number.
static cn_err emit_plane_average(struct cn_import_node *node)
{
    struct cn_node pool = cn_graph_node(CN_OP_AVERAGE_POOL);
    struct cn_window *w = &pool.call.window;
    cn_err err = read_geometry(node, w);

    if (err)
        return err;
    for (int i = 0; i < 2; i++) {
        w->kernel[i] = w->in[i];
        w->out[i] = 1;
    }
    w->channels_out = w->channels_in;
    w->groups = 1;
    return emit_pool(node, &pool);
}

// Averages each channel to one number. The planes of a volume are joined into one plane first.
cn_err cn_import_global_average_pool(struct cn_import_node *node)
{
    struct cn_value x = *cn_import_value(node, 0);
    bool volume = x.rank == 5;
    cn_err err = CN_OK;

    if (volume) {
        x.rank = 4;
        x.dims[3] *= x.dims[4];
        err = cn_graph_add_value(node->graph, &x, &node->in[0]);
    }
    if (!err)
        err = emit_plane_average(node);
    if (err || !volume)
        return err;
    x = node->graph->values[node->out];
    x.rank = 5;
    x.dims[4] = 1;
    return cn_graph_add_value(node->graph, &x, &node->out);
}
