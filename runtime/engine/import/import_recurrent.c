// LSTM, GRU and RNN. Each direction is a product of all steps with the input's weight, then one
// recurrent call. The batch lies in dimension 1 of the file's shapes.
#include <string.h>

#include "runtime/engine/import/import_emit.h"

#define DIRECTIONS_MAX 2

// Inputs of the node.
enum { X, W, R, B, LENGTHS, FIRST, FIRST_CELL, PEEPHOLES };

struct layer {
    struct cn_recurrent op;
    size_t gates, width; // number of gates; elements of all gates together
    size_t inputs;       // elements of a step
    size_t directions;
    bool reverse;    // the only direction runs from the last step to the first
    bool wants_cell; // something reads the cell after the last step
    // States by direction; CN_GRAPH_NONE where there is none.
    uint32_t first[DIRECTIONS_MAX], first_cell[DIRECTIONS_MAX];
    uint32_t y[DIRECTIONS_MAX], last_cell[DIRECTIONS_MAX];
};

// Reads the activation functions. Only the defaults, which PyTorch's exporter writes, are allowed:
// sigmoid and tanh, for RNN also ReLU.
static cn_err read_activations(const struct cn_import_node *node, struct layer *layer)
{
    static const char *const usual[3][3] = {
        {"Tanh"}, {"Sigmoid", "Tanh"}, {"Sigmoid", "Tanh", "Tanh"}};
    const struct cn_onnx_attribute *found = cn_onnx_attribute_find(node->node, "activations");
    size_t kinds = layer->gates == 1 ? 1 : layer->gates == 3 ? 2 : 3;

    if (!found)
        return CN_OK;
    if (found->text_count != kinds * layer->directions)
        return cn_import_refuse(node, "%zu activations", found->text_count);
    if (layer->gates == 1 && cn_text_equal(found->texts[0], "Relu"))
        layer->op.kind = CN_RECURRENT_RELU;
    for (size_t i = 0; i < found->text_count; i++)
        if (!cn_text_equal(found->texts[i], layer->op.kind == CN_RECURRENT_RELU
                                                ? "Relu"
                                                : usual[kinds - 1][i % kinds]))
            return cn_import_refuse(node, "activation '%.*s' is not supported",
                                    (int)found->texts[i].size, found->texts[i].data);
    return CN_OK;
}

static cn_err read_direction(const struct cn_import_node *node, struct layer *layer)
{
    const struct cn_onnx_attribute *found = cn_onnx_attribute_find(node->node, "direction");

    layer->directions = found && cn_text_equal(found->s, "bidirectional") ? 2 : 1;
    layer->reverse = found && cn_text_equal(found->s, "reverse");
    if (found && layer->directions == 1 && !layer->reverse && !cn_text_equal(found->s, "forward"))
        return cn_import_refuse(node, "direction '%.*s' is not supported", (int)found->s.size,
                                found->s.data);
    return CN_OK;
}

static cn_err read_kind(const struct cn_import_node *node, struct layer *layer)
{
    struct cn_recurrent *op = &layer->op;

    op->kind = CN_RECURRENT_TANH;
    layer->gates = 1;
    if (cn_text_equal(node->node->op, "LSTM")) {
        op->kind = CN_RECURRENT_LSTM;
        layer->gates = 4;
    } else if (cn_text_equal(node->node->op, "GRU")) {
        op->kind = CN_RECURRENT_GRU;
        layer->gates = 3;
        op->reset_after = cn_import_int(node, "linear_before_reset", 0) != 0;
    }
    if (cn_import_has(node, LENGTHS) || cn_import_has(node, PEEPHOLES))
        return cn_import_refuse(node, "lengths of sequences and peepholes are not supported");
    return CN_OK;
}

static bool has_dims(const struct cn_import_node *node, size_t input, uint64_t a, uint64_t b,
                     uint64_t c)
{
    const struct cn_value *value = cn_import_value(node, input);

    return !value->batched && value->rank == (c ? 3 : 2) && value->dims[0] == a &&
           value->dims[1] == b && (!c || value->dims[2] == c);
}

static cn_err read_shapes(const struct cn_import_node *node, struct layer *layer)
{
    const struct cn_value *x = cn_import_value(node, X);

    if (x->rank != 3 || cn_graph_is_shared(x) || x->batch_axis != 1 ||
        x->dims[1] != node->graph->batch)
        return cn_import_refuse(node, "the input must be samples of [steps, batch, inputs]");
    layer->op.steps = x->dims[0];
    layer->inputs = x->dims[2];
    if (cn_import_value(node, R)->rank != 3)
        return cn_import_refuse(node, "R must have rank 3");
    layer->op.hidden = cn_import_value(node, R)->dims[2];
    layer->width = layer->gates * layer->op.hidden;
    if (cn_import_int(node, "hidden_size", (int64_t)layer->op.hidden) != (int64_t)layer->op.hidden)
        return cn_import_refuse(node, "hidden_size is not that of R, which is %zu",
                                layer->op.hidden);
    if (!has_dims(node, W, layer->directions, layer->width, layer->inputs) ||
        !has_dims(node, R, layer->directions, layer->width, layer->op.hidden) ||
        (cn_import_has(node, B) && !has_dims(node, B, layer->directions, 2 * layer->width, 0)))
        return cn_import_refuse(node,
                                "W, R and B must be weights for %zu directions, %zu inputs "
                                "and %zu hidden units",
                                layer->directions, layer->inputs, layer->op.hidden);
    return CN_OK;
}

// Makes a dense part of an input a value of its own: rows * cols words from `at` on.
static cn_err take_part(struct cn_import_node *node, uint32_t from, size_t at, uint32_t rank,
                        size_t rows, size_t cols, uint32_t *part)
{
    struct cn_value like = {.rank = rank, .dims = {rows, cols}};
    size_t count = rank == 2 ? rows * cols : rows;
    struct cn_import_piece piece = {
        .from = from,
        .copy = {.rank = 1, .dims = {count}, .x = {1}, .y = {1}, .x_offset = at, .scale = 1}};
    struct cn_value whole = node->graph->values[from];

    if (at || whole.words != count || whole.batched)
        return cn_import_assemble(node, &like, NULL, &piece, 1, part);
    whole.rank = rank;
    whole.dims[0] = rows;
    whole.dims[1] = cols;
    return cn_graph_add_value(node->graph, &whole, part);
}

// Takes one direction's part of a state that differs between samples.
static cn_err take_state(struct cn_import_node *node, size_t input, size_t direction, size_t hidden,
                         uint32_t *state)
{
    const struct cn_value like = {
        .rank = 3, .dims = {1, node->graph->batch, hidden}, .batched = true, .batch_axis = 1};
    struct cn_import_piece piece = {.from = node->in[input],
                                    .copy = {.rank = 1,
                                             .dims = {hidden},
                                             .x = {1},
                                             .y = {1},
                                             .x_offset = direction * hidden,
                                             .scale = 1}};

    return cn_import_assemble(node, &like, NULL, &piece, 1, state);
}

// Reads a state before the first step for each direction; CN_GRAPH_NONE when it is known to be
// zeros.
static cn_err read_first(struct cn_import_node *node, const struct layer *layer, size_t input,
                         uint32_t *first)
{
    size_t hidden = layer->op.hidden;
    const struct cn_value *value;
    bool zeros = true, batched;
    cn_err err;

    first[0] = first[1] = CN_GRAPH_NONE;
    if (!cn_import_has(node, input))
        return CN_OK;
    err = cn_import_share_rows(node, 1, &node->in[input]);
    if (err)
        return err;
    value = cn_import_value(node, input);
    batched = value->batched && !cn_import_is_known(value);
    if (value->words != layer->directions * hidden || value->integers || value->batch_repeats > 1 ||
        (batched && (value->rank != 3 || value->batch_axis != 1)))
        return cn_import_refuse(node, "the first state must be [directions, batch, %zu] floats",
                                hidden);
    err = cn_import_work(node, value->words);
    for (size_t i = 0; !err && zeros && i < value->words; i++)
        zeros = cn_import_is_known(value) && cn_import_known_float(node->graph, value, i) == 0;
    for (size_t d = 0; !err && !zeros && d < layer->directions; d++)
        err = batched ? take_state(node, input, d, hidden, &first[d])
                      : take_part(node, node->in[input], d * hidden, 1, hidden, 0, &first[d]);
    return err;
}

// Splits the bias of a direction. The input's half and the recurrent half add up, except the part
// that GRU's hidden gate adds to its product before the reset: that is hidden_bias.
static cn_err split_bias(struct cn_import_node *node, const struct layer *layer, size_t direction,
                         uint32_t *bias, uint32_t *hidden_bias)
{
    bool apart = layer->op.reset_after;
    size_t at = direction * 2 * layer->width, hidden = layer->op.hidden;
    // Elements of the recurrent half that are added to the input's half.
    size_t added = apart ? 2 * hidden : layer->width;
    struct cn_value like = {.rank = 1, .dims = {layer->width}};
    struct cn_import_piece piece = {.from = node->in[B],
                                    .copy = {.rank = 1,
                                             .dims = {added},
                                             .x = {1},
                                             .y = {1},
                                             .x_offset = at + layer->width,
                                             .scale = 1}};
    const float zero = 0;
    uint32_t input, recurrent;
    cn_err err;

    *bias = *hidden_bias = CN_GRAPH_NONE;
    if (!cn_import_has(node, B))
        return CN_OK;
    err = take_part(node, node->in[B], at, 1, layer->width, 0, &input);
    if (!err)
        err = cn_import_assemble(node, &like, &zero, &piece, 1, &recurrent);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_ADD, input, recurrent, bias);
    if (err || !apart)
        return err;
    piece.copy.dims[0] = hidden;
    piece.copy.x_offset += added;
    piece.copy.y_offset = added;
    return cn_import_assemble(node, &like, &zero, &piece, 1, hidden_bias);
}

// Adds the input's part of all gates at all steps.
static cn_err emit_gates(struct cn_import_node *node, const struct layer *layer, size_t direction,
                         uint32_t bias, uint32_t *gates)
{
    struct cn_node product = cn_graph_node(CN_OP_MATMUL);
    struct cn_value like = *cn_import_value(node, X);
    cn_err err;

    product.call.matmul = (struct cn_matmul){.rows = layer->op.steps,
                                             .inner = layer->inputs,
                                             .cols = layer->width,
                                             .transpose_b = true,
                                             .alpha = 1,
                                             .bias_scale = 1};
    like.dims[2] = layer->width;
    err = cn_import_as_floats(node, node->in[X], &product.in[0]);
    if (!err)
        err = take_part(node, node->in[W], direction * layer->width * layer->inputs, 2,
                        layer->width, layer->inputs, &product.in[1]);
    if (!err)
        err = cn_import_add(node, &like, gates);
    product.in[2] = bias;
    product.out[0] = *gates;
    return err ? err : cn_graph_add_node(node->graph, &product);
}

static cn_err add_last_cell(struct cn_import_node *node, size_t hidden, uint32_t *cell)
{
    const struct cn_value like = {
        .rank = 3, .dims = {1, node->graph->batch, hidden}, .batched = true, .batch_axis = 1};

    return cn_import_add(node, &like, cell);
}

static cn_err emit_direction(struct cn_import_node *node, struct layer *layer, size_t direction)
{
    struct cn_node call = cn_graph_node(CN_OP_RECURRENT);
    struct cn_value like = *cn_import_value(node, X);
    size_t hidden = layer->op.hidden;
    uint32_t bias;
    cn_err err = split_bias(node, layer, direction, &bias, &call.in[2]);

    if (!err)
        err = emit_gates(node, layer, direction, bias, &call.in[0]);
    if (!err)
        err = take_part(node, node->in[R], direction * layer->width * hidden, 2, layer->width,
                        hidden, &call.in[1]);
    like.dims[2] = hidden;
    like.integers = false;
    if (!err)
        err = cn_import_add(node, &like, &layer->y[direction]);
    like.dims[2] = layer->width + hidden;
    if (!err)
        err = cn_import_add(node, &like, &call.out[1]);
    if (!err && layer->wants_cell)
        err = add_last_cell(node, hidden, &layer->last_cell[direction]);
    if (err)
        return err;
    call.call.recurrent = layer->op;
    call.call.recurrent.reverse = layer->reverse || direction == 1;
    call.in[3] = layer->first[direction];
    call.in[4] = layer->first_cell[direction];
    call.out[0] = layer->y[direction];
    call.out[2] = layer->wants_cell ? layer->last_cell[direction] : CN_GRAPH_NONE;
    return cn_graph_add_node(node->graph, &call);
}

// Defines Y: [steps, directions, batch, hidden].
static cn_err define_all_steps(struct cn_import_node *node, const struct layer *layer)
{
    size_t steps = layer->op.steps, hidden = layer->op.hidden;
    struct cn_value like = {.rank = 4,
                            .dims = {steps, layer->directions, node->graph->batch, hidden},
                            .batched = true,
                            .batch_axis = 2};
    struct cn_import_piece pieces[DIRECTIONS_MAX];

    if (layer->directions == 1) {
        like = node->graph->values[layer->y[0]];
        like.rank = 4;
        like.batch_axis = 2;
        memcpy(like.dims, (uint64_t[]){steps, 1, node->graph->batch, hidden},
               4 * sizeof(*like.dims));
        return cn_graph_add_value(node->graph, &like, &node->out);
    }
    for (size_t d = 0; d < layer->directions; d++)
        pieces[d] =
            (struct cn_import_piece){.from = layer->y[d],
                                     .copy = {.rank = 2,
                                              .dims = {steps, hidden},
                                              .x = {(ptrdiff_t)hidden, 1},
                                              .y = {(ptrdiff_t)(layer->directions * hidden), 1},
                                              .y_offset = d * hidden,
                                              .scale = 1}};
    return cn_import_assemble(node, &like, NULL, pieces, layer->directions, &node->out);
}

// Joins one state of each direction to [directions, batch, hidden]. Each takes `hidden` words of
// its value in from, starting at at[].
static cn_err join_states(struct cn_import_node *node, const struct layer *layer,
                          const uint32_t *from, const size_t *at, uint32_t *out)
{
    size_t hidden = layer->op.hidden;
    struct cn_value like = {.rank = 3,
                            .dims = {layer->directions, node->graph->batch, hidden},
                            .batched = true,
                            .batch_axis = 1};
    struct cn_import_piece pieces[DIRECTIONS_MAX];

    for (size_t d = 0; d < layer->directions; d++)
        pieces[d] = (struct cn_import_piece){.from = from[d],
                                             .copy = {.rank = 1,
                                                      .dims = {hidden},
                                                      .x = {1},
                                                      .y = {1},
                                                      .x_offset = at[d],
                                                      .y_offset = d * hidden,
                                                      .scale = 1}};
    return cn_import_assemble(node, &like, NULL, pieces, layer->directions, out);
}

// Defines Y_h: the state after each direction's last step.
static cn_err define_last_step(struct cn_import_node *node, const struct layer *layer)
{
    size_t last = (layer->op.steps - 1) * layer->op.hidden;
    const size_t at[DIRECTIONS_MAX] = {layer->reverse ? 0 : last, 0};

    return join_states(node, layer, layer->y, at, &node->more[0]);
}

// Defines Y_c: the cell after each direction's last step.
static cn_err define_last_cell(struct cn_import_node *node, const struct layer *layer)
{
    const size_t at[DIRECTIONS_MAX] = {0};

    if (layer->directions == 1) {
        node->more[1] = layer->last_cell[0];
        return CN_OK;
    }
    return join_states(node, layer, layer->last_cell, at, &node->more[1]);
}

cn_err cn_import_recurrent(struct cn_import_node *node)
{
    const struct cn_onnx_node *source = node->node;
    struct layer layer = {.op = {.kind = CN_RECURRENT_TANH}};
    cn_err err = read_kind(node, &layer);

    if (!err)
        err = read_direction(node, &layer);
    if (!err)
        err = read_activations(node, &layer);
    if (!err)
        err = cn_import_refuse_size(node);
    for (size_t i = W; !err && i <= B; i++)
        if (cn_import_has(node, i))
            err = cn_import_as_floats(node, node->in[i], &node->in[i]);
    if (!err)
        err = read_shapes(node, &layer);
    if (!err)
        err = read_first(node, &layer, FIRST, layer.first);
    if (!err)
        err = read_first(node, &layer, FIRST_CELL, layer.first_cell);
    if (err)
        return err;
    // Every exporter writes the last cell as an output, so it is made only where something reads
    // it.
    layer.wants_cell = source->output_count > 2 && source->outputs[2].size &&
                       cn_onnx_is_read(node->onnx, source->outputs[2]);
    for (size_t d = 0; !err && d < layer.directions; d++)
        err = emit_direction(node, &layer, d);
    if (!err && source->output_count && source->outputs[0].size)
        err = define_all_steps(node, &layer);
    if (!err && source->output_count > 1 && source->outputs[1].size)
        err = define_last_step(node, &layer);
    if (!err && layer.wants_cell)
        err = define_last_cell(node, &layer);
    return err;
}
