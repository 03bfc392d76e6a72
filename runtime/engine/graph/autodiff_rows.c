// Products of each sample's matrices, softmax, normalization of rows.
#include "runtime/engine/graph/autodiff_private.h"

// Adds the gradient of one side of c = alpha op(a) op(b). da = alpha dc op(b)', db = alpha op(a)'
// dc, each transposed if op transposes the operand.
static cn_err products_side(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dc,
                            int side)
{
    const struct cn_products *op = &forward->call.products;
    bool transposed = side ? op->transpose_b : op->transpose_a;
    bool other_first = (side == 1) != transposed; // the other operand comes before dc
    bool other_transposed = side ? op->transpose_a : op->transpose_b;
    struct cn_node node = cn_graph_node(CN_OP_PRODUCTS);
    struct cn_products *to = &node.call.products;

    if (!cn_autodiff_needs(diff, forward->in[side]))
        return CN_OK;
    *to = (struct cn_products){.count = op->count, .alpha = op->alpha};
    to->rows = side ? (transposed ? op->cols : op->inner) : (transposed ? op->inner : op->rows);
    to->cols = side ? (transposed ? op->inner : op->cols) : (transposed ? op->rows : op->inner);
    to->inner = side ? op->rows : op->cols;
    to->stride_c = side ? op->stride_b : op->stride_a;
    to->leading_c = side ? op->leading_b : op->leading_a;
    node.in[other_first ? 0 : 1] = forward->in[1 - side];
    node.in[other_first ? 1 : 0] = dc;
    if (other_first) {
        to->transpose_a = side ? !other_transposed : other_transposed;
        to->transpose_b = side == 0;
        to->stride_a = side ? op->stride_a : op->stride_b;
        to->leading_a = side ? op->leading_a : op->leading_b;
        to->stride_b = op->stride_c;
        to->leading_b = op->leading_c;
    } else {
        to->transpose_a = side == 1;
        to->transpose_b = side ? other_transposed : !other_transposed;
        to->stride_b = side ? op->stride_a : op->stride_b;
        to->leading_b = side ? op->leading_a : op->leading_b;
        to->stride_a = op->stride_c;
        to->leading_a = op->leading_c;
    }
    return cn_autodiff_emit(diff, &node, forward->in[side]);
}

cn_err cn_autodiff_products(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dc)
{
    cn_err err = products_side(diff, forward, dc, 0);

    return err ? err : products_side(diff, forward, dc, 1);
}

cn_err cn_autodiff_softmax(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_SOFTMAX_GRAD);

    node.call.softmax = forward->call.softmax;
    node.in[0] = dy;
    node.in[1] = forward->out[0];
    return cn_autodiff_emit_set(diff, &node, forward->in[0]);
}

cn_err cn_autodiff_norm(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node affine = cn_graph_node(CN_OP_NORM_GRAD_AFFINE);
    struct cn_node input = cn_graph_node(CN_OP_NORM_GRAD);
    uint32_t targets[2] = {forward->in[1], forward->in[2]};
    cn_err err = CN_OK;

    affine.call.norm = input.call.norm = forward->call.norm;
    affine.in[0] = input.in[0] = dy;
    affine.in[1] = input.in[1] = forward->in[0];
    affine.in[2] = input.in[2] = forward->out[1];
    input.in[3] = forward->in[1];
    for (int i = 0; i < 2; i++)
        if (!cn_autodiff_needs(diff, targets[i]))
            targets[i] = CN_GRAPH_NONE;
    if (targets[0] != CN_GRAPH_NONE || targets[1] != CN_GRAPH_NONE)
        err = cn_autodiff_emit_all(diff, &affine, targets, 2);
    if (err || !cn_autodiff_needs(diff, forward->in[0]))
        return err;
    return cn_autodiff_emit_set(diff, &input, forward->in[0]);
}
