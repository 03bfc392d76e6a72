// Transposed convolutions, resized planes and extremes.
#include <string.h>

#include "runtime/engine/graph/autodiff_private.h"

// A transposed convolution y of x by w is the input gradient of a convolution by w. So dx is that
// convolution of dy. dw is its weight gradient with x and dy exchanged.
cn_err cn_autodiff_conv_transpose(struct cn_autodiff *diff, const struct cn_node *forward,
                                  uint32_t dy)
{
    struct cn_node weight = cn_graph_node(CN_OP_CONV_GRAD_WEIGHT);
    struct cn_node input = cn_graph_node(CN_OP_CONV);
    cn_err err = CN_OK;

    weight.call.window = input.call.window = forward->call.window;
    weight.in[0] = forward->in[0];
    weight.in[1] = dy;
    if (cn_autodiff_needs(diff, forward->in[1]))
        err = cn_autodiff_emit(diff, &weight, forward->in[1]);
    if (err || !cn_autodiff_needs(diff, forward->in[0]))
        return err;
    input.in[0] = dy;
    input.in[1] = forward->in[1];
    return cn_autodiff_emit_set(diff, &input, forward->in[0]);
}

cn_err cn_autodiff_resize(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_RESIZE_GRAD);

    node.call.resize = forward->call.resize;
    node.in[0] = dy;
    return cn_autodiff_emit_set(diff, &node, forward->in[0]);
}

// Adds a value with the dims of like, and the node that computes it.
static cn_err compute_like(struct cn_autodiff *diff, struct cn_node *node, uint32_t like)
{
    cn_err err = cn_autodiff_activation(diff, like, &node->out[0]);

    return err ? err : cn_graph_add_node(diff->graph, node);
}

// dx = (x == y) * (dy / the number of elements that are equal to y). Where only one element is
// equal to y, these are the bits that CN_OP_EXTREME_GRAD gives.
static cn_err share_evenly(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    const struct cn_extreme *op = &forward->call.extreme;
    struct cn_node equal = cn_graph_node(CN_OP_COMBINE), times = cn_graph_node(CN_OP_COMBINE);
    struct cn_node sum = cn_graph_node(CN_OP_COMBINE_GRAD), part = cn_graph_node(CN_OP_COMBINE);
    struct cn_combine along = {.kind = CN_COMBINE_EQUAL, .rank = op->rank, .scale = 1};
    size_t stride = 1;
    cn_err err;

    for (uint32_t d = op->rank; d-- > 0;) {
        along.dims[d] = op->dims[d];
        along.a[d] = stride;
        along.b[d] = op->y[d];
        stride *= op->dims[d];
    }
    equal.call.combine = times.call.combine = sum.call.combine = along;
    equal.in[0] = forward->in[0];
    equal.in[1] = forward->out[0];
    err = compute_like(diff, &equal, forward->in[0]);
    if (err)
        return err;
    sum.call.combine.kind = CN_COMBINE_ADD;
    memcpy(sum.call.combine.a, op->y, sizeof(op->y));
    sum.in[0] = equal.out[0];
    err = compute_like(diff, &sum, forward->out[0]);
    if (err)
        return err;
    part.call.combine = (struct cn_combine){.kind = CN_COMBINE_DIV,
                                            .rank = 1,
                                            .dims = {diff->graph->values[dy].words},
                                            .a = {1},
                                            .b = {1}};
    part.in[0] = dy;
    part.in[1] = sum.out[0];
    err = compute_like(diff, &part, forward->out[0]);
    if (err)
        return err;
    times.call.combine.kind = CN_COMBINE_MUL;
    times.in[0] = equal.out[0];
    times.in[1] = part.out[0];
    return cn_autodiff_emit_set(diff, &times, forward->in[0]);
}

cn_err cn_autodiff_extreme(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_EXTREME_GRAD);

    if (forward->call.extreme.even)
        return share_evenly(diff, forward, dy);
    node.call.extreme = forward->call.extreme;
    node.in[0] = dy;
    node.in[1] = forward->out[1];
    return cn_autodiff_emit_set(diff, &node, forward->in[0]);
}
