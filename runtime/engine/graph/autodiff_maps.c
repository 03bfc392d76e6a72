// Elementwise ops, and sums over what an operand repeats.
#include "runtime/engine/graph/autodiff_private.h"

static bool has_gradient(const struct cn_call *call)
{
    if (call->op == CN_OP_MAP)
        return call->map.kind < CN_MAP_SIGN || call->map.kind >= CN_MAP_NEEDS_X;
    return call->combine.kind < CN_COMBINE_EQUAL;
}

cn_err cn_autodiff_maps(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_MAP_GRAD);

    if (!has_gradient(&forward->call))
        return CN_OK;
    node.call.map = forward->call.map;
    node.in[0] = dy;
    node.in[1] = node.call.map.kind >= CN_MAP_NEEDS_X ? forward->in[0] : forward->out[0];
    return cn_autodiff_emit_set(diff, &node, forward->in[0]);
}

// Returns whether the gradient of an operand equals the gradient of the result.
static bool passes_through(const struct cn_graph *graph, const struct cn_combine *op,
                           uint32_t target, uint32_t dc)
{
    const struct cn_value *operand = &graph->values[target], *result = &graph->values[dc];
    bool slope_1 = op->kind == CN_COMBINE_ADD || (op->kind == CN_COMBINE_SUB && op->side == 0);

    return slope_1 && !op->where && operand->kind == CN_VALUE_ACTIVATION &&
           operand->words == result->words &&
           cn_graph_is_shared(operand) == cn_graph_is_shared(result);
}

static cn_err combine_side(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dc,
                           int side)
{
    struct cn_node node = cn_graph_node(CN_OP_COMBINE_GRAD);
    struct cn_combine *op = &node.call.combine;
    uint32_t target = forward->in[side];

    if (!cn_autodiff_needs(diff, target))
        return CN_OK;
    *op = forward->call.combine;
    op->side = side;
    op->where = forward->call.op == CN_OP_WHERE;
    op->scale = 1;
    if (passes_through(diff->graph, op, target, dc))
        return cn_autodiff_share(diff, target, dc);
    node.in[0] = dc;
    if (op->where) {
        node.in[1] = forward->in[2];
    } else if (op->kind == CN_COMBINE_MUL) {
        node.in[2 - side] = forward->in[1 - side];
    } else if (op->kind > CN_COMBINE_MUL) {
        node.in[1] = forward->in[0];
        node.in[2] = forward->in[1];
    }
    return cn_autodiff_emit(diff, &node, target);
}

cn_err cn_autodiff_combine(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dc)
{
    cn_err err;

    if (forward->call.op == CN_OP_COMBINE && !has_gradient(&forward->call))
        return CN_OK;
    err = combine_side(diff, forward, dc, 0);
    return err ? err : combine_side(diff, forward, dc, 1);
}

// The sum over dims is the gradient of repetition, so its own gradient is repetition.
cn_err cn_autodiff_sum(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    const struct cn_combine *op = &forward->call.combine;
    struct cn_node node = cn_graph_node(CN_OP_COPY);
    struct cn_copy *copy = &node.call.copy;
    ptrdiff_t stride = 1;

    copy->rank = op->rank;
    copy->scale = op->scale;
    for (uint32_t d = op->rank; d-- > 0;) {
        copy->dims[d] = op->dims[d];
        copy->x[d] = (ptrdiff_t)op->a[d];
        copy->y[d] = stride;
        stride *= (ptrdiff_t)op->dims[d];
    }
    node.in[0] = dy;
    return cn_autodiff_emit_set(diff, &node, forward->in[0]);
}
