// Recurrent layers. The gradient of the layer's inputs is the gradient at its gates. The gradient
// of the recurrent weight is a product of the gates' gradient with the hidden state of the step
// before.
#include "runtime/engine/graph/autodiff_private.h"

// Adds an activation of zeros: `rows` rows of `words` words for each sample.
static cn_err add_rows(struct cn_autodiff *diff, size_t rows, size_t words, uint32_t *out)
{
    const struct cn_value each = {.kind = CN_VALUE_ACTIVATION,
                                  .root = CN_GRAPH_NONE,
                                  .rank = 3,
                                  .dims = {rows, diff->graph->batch, words},
                                  .batched = true,
                                  .batch_axis = 1};
    cn_err err = cn_graph_add_value(diff->graph, &each, out);

    return err ? err : cn_autodiff_clear(diff, *out, CN_WRITE_SET);
}

// Returns whether the hidden gate's product sees the state after reset, as in GRU without
// reset_after. The rows of states then come twice: h(t - 1) for the first gates, the state after
// reset for the hidden gate.
static bool sees_reset(const struct cn_recurrent *op)
{
    return op->kind == CN_RECURRENT_GRU && !op->reset_after;
}

// Returns a copy of count elements of each step's row. The rows lie from_row and to_row words
// apart.
static struct cn_copy columns(size_t steps, size_t count, size_t from_row, size_t to_row)
{
    return (struct cn_copy){.rank = 2,
                            .dims = {steps, count},
                            .x = {(ptrdiff_t)from_row, 1},
                            .y = {(ptrdiff_t)to_row, 1},
                            .scale = 1};
}

static cn_err emit_copy(struct cn_autodiff *diff, uint32_t from, uint32_t to, struct cn_copy copy)
{
    struct cn_node node = cn_graph_node(CN_OP_COPY);

    node.call.copy = copy;
    node.in[0] = from;
    node.out[0] = to;
    return cn_graph_add_node(diff->graph, &node);
}

// Adds the hidden states that the products saw: the first state, then y up to the last step but
// one. With sees_reset, the states after reset follow.
static cn_err emit_states_before(struct cn_autodiff *diff, const struct cn_node *forward,
                                 uint32_t *states)
{
    const struct cn_recurrent *op = &forward->call.recurrent;
    struct cn_copy copy = {.rank = 1, .x = {1}, .y = {1}, .scale = 1};
    struct cn_copy reset = columns(op->steps, op->hidden, 4 * op->hidden, op->hidden);
    cn_err err = add_rows(diff, op->steps * (sees_reset(op) ? 2 : 1), op->hidden, states);

    reset.x_offset = 3 * op->hidden;
    reset.y_offset = op->steps * op->hidden;
    if (!err && sees_reset(op))
        err = emit_copy(diff, forward->out[1], *states, reset);
    if (!err && forward->in[3] != CN_GRAPH_NONE) {
        copy.dims[0] = op->hidden;
        copy.y_offset = op->reverse ? (op->steps - 1) * op->hidden : 0;
        err = emit_copy(diff, forward->in[3], *states, copy);
    }
    if (err || op->steps == 1)
        return err;
    copy.dims[0] = (op->steps - 1) * op->hidden;
    copy.x_offset = op->reverse ? op->hidden : 0;
    copy.y_offset = op->reverse ? 0 : op->hidden;
    return emit_copy(diff, forward->out[0], *states, copy);
}

// Pairs the gates' gradients with the states that their products saw: rows [dz dr 0] for h(t - 1),
// then rows [0 0 dn] for the states after reset.
static cn_err spread_gates(struct cn_autodiff *diff, const struct cn_recurrent *op, uint32_t *seen)
{
    size_t hidden = op->hidden, width = 3 * hidden;
    struct cn_copy early = columns(op->steps, 2 * hidden, width, width);
    struct cn_copy late = columns(op->steps, hidden, width, width);
    uint32_t spread;
    cn_err err = add_rows(diff, 2 * op->steps, width, &spread);

    late.x_offset = 2 * hidden;
    late.y_offset = op->steps * width + 2 * hidden;
    if (!err)
        err = emit_copy(diff, *seen, spread, early);
    if (!err)
        err = emit_copy(diff, *seen, spread, late);
    *seen = spread;
    return err;
}

// Adds the gradient of the recurrent weight. seen is the gradient of the product with that weight.
static cn_err emit_weight(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t seen)
{
    const struct cn_recurrent *op = &forward->call.recurrent;
    struct cn_node product = cn_graph_node(CN_OP_MATMUL);
    size_t width = diff->graph->values[seen].words / op->steps;
    cn_err err = sees_reset(op) ? spread_gates(diff, op, &seen) : CN_OK;

    product.call.matmul = (struct cn_matmul){.rows = width,
                                             .inner = op->steps * (sees_reset(op) ? 2 : 1),
                                             .cols = op->hidden,
                                             .transpose_a = true,
                                             .inner_batched = true,
                                             .alpha = 1};
    product.in[0] = seen;
    if (!err)
        err = emit_states_before(diff, forward, &product.in[1]);
    return err ? err : cn_autodiff_emit(diff, &product, forward->in[1]);
}

// Adds the gradient of a state before the first step, one for each sample. take_first sums it when
// the samples share the state.
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

// Returns the gradient of the cell after the last step; CN_GRAPH_NONE when nothing reads that cell.
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
    bool apart = op->kind == CN_RECURRENT_GRU && op->reset_after;
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
    if (!err && apart)
        err = cn_autodiff_activation(diff, forward->in[0], &node.out[1]);
    for (int i = 0; !err && i < 2; i++)
        err = add_first(diff, forward->in[3 + i], op->hidden, &node.out[2 + i]);
    if (!err)
        err = cn_graph_add_node(diff->graph, &node);
    for (int i = 0; !err && i < 2; i++)
        err = take_first(diff, forward->in[3 + i], op->hidden, node.out[2 + i]);
    if (!err && cn_autodiff_needs(diff, forward->in[0]))
        err = cn_autodiff_share(diff, forward->in[0], node.out[0]);
    seen = apart ? node.out[1] : node.out[0];
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
