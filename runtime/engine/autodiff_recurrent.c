// Recurrent layers. What reached the gates is the gradient of their inputs; the recurrent weight's
// is a product of it with the hidden state one step before.
#include "runtime/engine/autodiff_private.h"

// The hidden states as the products saw them: y one step later, the first state before it.
static cn_err emit_states_before(struct cn_autodiff *diff, const struct cn_node *forward,
                                 uint32_t *states)
{
    const struct cn_recurrent *op = &forward->call.recurrent;
    struct cn_node fill = cn_graph_node(CN_OP_FILL), copy = cn_graph_node(CN_OP_COPY);
    cn_err err = cn_autodiff_activation(diff, forward->out[0], states);

    fill.call.fill.count = diff->graph->values[forward->out[0]].words;
    fill.out[0] = *states;
    if (!err)
        err = cn_graph_add_node(diff->graph, &fill);
    copy.out[0] = *states;
    copy.call.copy = (struct cn_copy){.rank = 1, .x = {1}, .y = {1}, .scale = 1};
    if (!err && forward->in[3] != CN_GRAPH_NONE) {
        copy.call.copy.dims[0] = op->hidden;
        copy.call.copy.y_offset = op->reverse ? (op->steps - 1) * op->hidden : 0;
        copy.in[0] = forward->in[3];
        err = cn_graph_add_node(diff->graph, &copy);
    }
    if (err || op->steps == 1)
        return err;
    copy.call.copy.dims[0] = (op->steps - 1) * op->hidden;
    copy.call.copy.x_offset = op->reverse ? op->hidden : 0;
    copy.call.copy.y_offset = op->reverse ? 0 : op->hidden;
    copy.in[0] = forward->out[0];
    return cn_graph_add_node(diff->graph, &copy);
}

// seen: the gradient of the product with the recurrent weight.
static cn_err emit_weight(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t seen)
{
    const struct cn_recurrent *op = &forward->call.recurrent;
    struct cn_node product = cn_graph_node(CN_OP_MATMUL);
    size_t width = diff->graph->values[seen].words / op->steps;
    cn_err err;

    product.call.matmul = (struct cn_matmul){.rows = width,
                                             .inner = op->steps,
                                             .cols = op->hidden,
                                             .transpose_a = true,
                                             .inner_batched = true,
                                             .alpha = 1};
    product.in[0] = seen;
    err = emit_states_before(diff, forward, &product.in[1]);
    return err ? err : cn_autodiff_emit(diff, &product, forward->in[1]);
}

// The gradient of a state before the first step: one for each sample, added up where they share it.
static cn_err add_first(struct cn_autodiff *diff, uint32_t first, size_t hidden, uint32_t *out)
{
    const struct cn_value each = {.kind = CN_VALUE_ACTIVATION,
                                  .root = CN_GRAPH_NONE,
                                  .rank = 3,
                                  .dims = {1, diff->graph->batch, hidden},
                                  .batched = true,
                                  .batch_axis = 1,
                                  .words = hidden};

    *out = CN_GRAPH_NONE;
    return cn_autodiff_needs(diff, first) ? cn_graph_add_value(diff->graph, &each, out) : CN_OK;
}

static cn_err take_first(struct cn_autodiff *diff, uint32_t first, size_t hidden, uint32_t made)
{
    const struct cn_bias sum = {.rows = 1, .channels = hidden, .inner = 1, .scale = 1};

    if (made == CN_GRAPH_NONE)
        return CN_OK;
    if (!cn_graph_is_shared(&diff->graph->values[first]))
        return cn_autodiff_share(diff, first, made);
    return cn_autodiff_bias(diff, sum, made, first);
}

// The gradient of the cell after the last step, where something reads it.
static uint32_t last_cell_gradient(const struct cn_autodiff *diff, const struct cn_node *forward)
{
    return forward->out[2] == CN_GRAPH_NONE
               ? CN_GRAPH_NONE
               : diff->gradient[cn_graph_root(diff->graph, forward->out[2])];
}

cn_err cn_autodiff_recurrent_only_cell(struct cn_autodiff *diff, const struct cn_node *forward,
                                       uint32_t *dy)
{
    cn_err err;

    if (last_cell_gradient(diff, forward) == CN_GRAPH_NONE)
        return CN_OK;
    err = cn_autodiff_activation(diff, forward->out[0], dy);
    return err ? err : cn_autodiff_clear(diff, *dy, CN_WRITE_SET);
}

cn_err cn_autodiff_recurrent(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    const struct cn_recurrent *op = &forward->call.recurrent;
    struct cn_node node = cn_graph_node(CN_OP_RECURRENT_GRAD);
    uint32_t seen;
    cn_err err;

    node.call.recurrent = *op;
    node.in[0] = dy;
    node.in[1] = forward->out[0];
    node.in[2] = forward->out[1];
    for (int i = 1; i < 5; i++)
        node.in[2 + i] = forward->in[i];
    node.in[7] = last_cell_gradient(diff, forward);
    err = cn_autodiff_activation(diff, forward->in[0], &node.out[0]);
    if (!err && op->kind == CN_RECURRENT_GRU)
        err = cn_autodiff_activation(diff, forward->in[0], &node.out[1]);
    for (int i = 0; !err && i < 2; i++)
        err = add_first(diff, forward->in[3 + i], op->hidden, &node.out[2 + i]);
    if (!err)
        err = cn_graph_add_node(diff->graph, &node);
    for (int i = 0; !err && i < 2; i++)
        err = take_first(diff, forward->in[3 + i], op->hidden, node.out[2 + i]);
    if (!err && cn_autodiff_needs(diff, forward->in[0]))
        err = cn_autodiff_share(diff, forward->in[0], node.out[0]);
    seen = op->kind == CN_RECURRENT_GRU ? node.out[1] : node.out[0];
    if (!err)
        err = cn_autodiff_bias(
            diff,
            (struct cn_bias){.rows = op->steps,
                             .channels = diff->graph->values[seen].words / op->steps,
                             .inner = 1,
                             .scale = 1},
            seen, forward->in[2]);
    if (err || !cn_autodiff_needs(diff, forward->in[1]))
        return err;
    return emit_weight(diff, forward, seen);
}
