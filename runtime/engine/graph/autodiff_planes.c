// Transposed convolutions, resized planes and extremes.
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

cn_err cn_autodiff_extreme(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_EXTREME_GRAD);

    node.call.extreme = forward->call.extreme;
    node.in[0] = dy;
    node.in[1] = forward->out[1];
    return cn_autodiff_emit_set(diff, &node, forward->in[0]);
}
