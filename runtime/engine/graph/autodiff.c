#include "runtime/engine/graph/autodiff.h"

#include <assert.h>
#include <stdlib.h>

#include "runtime/engine/graph/autodiff_private.h"

bool cn_autodiff_needs(const struct cn_autodiff *diff, uint32_t value)
{
    return value != CN_GRAPH_NONE && diff->needed[cn_graph_root(diff->graph, value)];
}

cn_err cn_autodiff_activation(struct cn_autodiff *diff, uint32_t like, uint32_t *index)
{
    struct cn_value value = diff->graph->values[like];

    value.kind = CN_VALUE_ACTIVATION;
    value.root = CN_GRAPH_NONE;
    value.transposed = value.integers = false;
    return cn_graph_add_value(diff->graph, &value, index);
}

cn_err cn_autodiff_parameter(struct cn_autodiff *diff, uint32_t parameter, uint32_t *index)
{
    uint32_t root = cn_graph_root(diff->graph, parameter);
    struct cn_value value = diff->graph->values[root];
    cn_err err = CN_OK;

    if (diff->gradient[root] == CN_GRAPH_NONE) {
        value.kind = CN_VALUE_GRADIENT;
        value.parameter = value.offset;
        value.root = CN_GRAPH_NONE;
        err = cn_graph_add_value(diff->graph, &value, &diff->gradient[root]);
    }
    *index = diff->gradient[root];
    return err;
}

cn_err cn_autodiff_share(struct cn_autodiff *diff, uint32_t activation, uint32_t part)
{
    uint32_t root = cn_graph_root(diff->graph, activation);
    struct cn_node sum = cn_graph_node(CN_OP_COMBINE);
    cn_err err;

    if (diff->gradient[root] == CN_GRAPH_NONE) {
        diff->gradient[root] = part;
        return CN_OK;
    }
    sum.call.combine = (struct cn_combine){.kind = CN_COMBINE_ADD,
                                           .rank = 1,
                                           .dims = {diff->graph->values[part].words},
                                           .a = {1},
                                           .b = {1},
                                           .scale = 1};
    sum.in[0] = diff->gradient[root];
    sum.in[1] = part;
    err = cn_autodiff_activation(diff, part, &sum.out[0]);
    if (err)
        return err;
    diff->gradient[root] = sum.out[0];
    return cn_graph_add_node(diff->graph, &sum);
}

cn_err cn_autodiff_clear(struct cn_autodiff *diff, uint32_t value, enum cn_write write)
{
    struct cn_node fill = cn_graph_node(CN_OP_FILL);

    if (write == CN_WRITE_ADD)
        return CN_OK;
    fill.call.write = write;
    fill.call.fill.count = diff->graph->values[value].words;
    fill.out[0] = value;
    return cn_graph_add_node(diff->graph, &fill);
}

// Adds the value in which a node writes the gradient of target; *write says how it writes.
static cn_err add_output(struct cn_autodiff *diff, uint32_t target, uint32_t *out,
                         enum cn_write *write)
{
    uint32_t root = cn_graph_root(diff->graph, target);

    *write = CN_WRITE_SET;
    if (diff->graph->values[target].kind != CN_VALUE_PARAM)
        return cn_autodiff_activation(diff, target, out);
    *write = diff->written[root] ? CN_WRITE_ADD : CN_WRITE_STEP;
    diff->written[root] = true;
    return cn_autodiff_parameter(diff, root, out);
}

// A call writes all outputs that the samples share in the same way. If their ways differ, the call
// adds to all, and those that it would set are cleared before.
static cn_err agree_on_write(struct cn_autodiff *diff, struct cn_node *node,
                             const enum cn_write *write, size_t count)
{
    bool first = true, differ = false;
    cn_err err = CN_OK;

    node->call.write = CN_WRITE_SET;
    for (size_t i = 0; i < count; i++) {
        if (node->out[i] == CN_GRAPH_NONE ||
            !cn_graph_is_shared(&diff->graph->values[node->out[i]]))
            continue;
        differ = differ || (!first && write[i] != node->call.write);
        node->call.write = first ? write[i] : node->call.write;
        first = false;
    }
    if (!differ)
        return CN_OK;
    node->call.write = CN_WRITE_ADD;
    for (size_t i = 0; !err && i < count; i++)
        if (node->out[i] != CN_GRAPH_NONE && cn_graph_is_shared(&diff->graph->values[node->out[i]]))
            err = cn_autodiff_clear(diff, node->out[i], write[i]);
    return err;
}

cn_err cn_autodiff_emit_all(struct cn_autodiff *diff, struct cn_node *node, const uint32_t *targets,
                            size_t count)
{
    enum cn_write write[CN_CALL_OUTPUTS] = {CN_WRITE_SET};
    cn_err err = CN_OK;

    for (size_t i = 0; !err && i < count; i++)
        if (targets[i] != CN_GRAPH_NONE)
            err = add_output(diff, targets[i], &node->out[i], &write[i]);
    if (!err)
        err = agree_on_write(diff, node, write, count);
    if (!err)
        err = cn_graph_add_node(diff->graph, node);
    for (size_t i = 0; !err && i < count; i++)
        if (targets[i] != CN_GRAPH_NONE && diff->graph->values[targets[i]].kind != CN_VALUE_PARAM)
            err = cn_autodiff_share(diff, targets[i], node->out[i]);
    return err;
}

cn_err cn_autodiff_emit(struct cn_autodiff *diff, struct cn_node *node, uint32_t target)
{
    return cn_autodiff_emit_all(diff, node, &target, 1);
}

// If target is a parameter, the node sets an activation, which is then added to the gradient.
cn_err cn_autodiff_emit_set(struct cn_autodiff *diff, struct cn_node *node, uint32_t target)
{
    struct cn_node add = cn_graph_node(CN_OP_COMBINE_GRAD);
    cn_err err;

    if (diff->graph->values[target].kind != CN_VALUE_PARAM)
        return cn_autodiff_emit(diff, node, target);
    err = cn_autodiff_activation(diff, cn_graph_root(diff->graph, target), &node->out[0]);
    if (!err)
        err = cn_graph_add_node(diff->graph, node);
    if (err)
        return err;
    add.call.combine = (struct cn_combine){.kind = CN_COMBINE_ADD,
                                           .rank = 1,
                                           .dims = {diff->graph->values[target].words},
                                           .a = {1},
                                           .scale = 1};
    add.in[0] = node->out[0];
    return cn_autodiff_emit(diff, &add, target);
}

// Replaces *dy by dx = dy * f'(x), computed from y.
static cn_err add_map_gradient(struct cn_autodiff *diff, struct cn_map map, uint32_t y,
                               uint32_t *dy)
{
    struct cn_node node = cn_graph_node(CN_OP_MAP_GRAD);
    cn_err err;

    node.call.map = map;
    node.in[0] = *dy;
    node.in[1] = y;
    err = cn_autodiff_activation(diff, y, &node.out[0]);
    if (err)
        return err;
    *dy = node.out[0];
    return cn_graph_add_node(diff->graph, &node);
}

cn_err cn_autodiff_bias(struct cn_autodiff *diff, struct cn_bias bias, uint32_t dy, uint32_t target)
{
    struct cn_node node = cn_graph_node(CN_OP_BIAS_GRAD);

    if (!cn_autodiff_needs(diff, target))
        return CN_OK;
    node.call.bias = bias;
    node.in[0] = dy;
    return cn_autodiff_emit(diff, &node, target);
}

static struct cn_map relu_of(const struct cn_autodiff *diff, uint32_t value)
{
    return (struct cn_map){.kind = CN_MAP_RELU, .count = diff->graph->values[value].words};
}

// c = alpha a b: da = alpha dc b', db = alpha a' dc.
static cn_err matmul_grad(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dc)
{
    const struct cn_matmul *op = &forward->call.matmul;
    struct cn_node a = cn_graph_node(CN_OP_MATMUL), b = cn_graph_node(CN_OP_MATMUL);
    cn_err err = CN_OK;

    assert(!op->transpose_a && !op->inner_batched);
    if (op->relu)
        err = add_map_gradient(diff, relu_of(diff, forward->out[0]), forward->out[0], &dc);
    if (!err)
        err = cn_autodiff_bias(
            diff,
            (struct cn_bias){
                .rows = op->rows, .channels = op->cols, .inner = 1, .scale = op->bias_scale},
            dc, forward->in[2]);
    if (err)
        return err;
    b.call.matmul = (struct cn_matmul){.rows = op->transpose_b ? op->cols : op->inner,
                                       .inner = op->rows,
                                       .cols = op->transpose_b ? op->inner : op->cols,
                                       .transpose_a = true,
                                       .inner_batched = true,
                                       .alpha = op->alpha};
    b.in[0] = op->transpose_b ? dc : forward->in[0];
    b.in[1] = op->transpose_b ? forward->in[0] : dc;
    if (cn_autodiff_needs(diff, forward->in[1]))
        err = cn_autodiff_emit(diff, &b, forward->in[1]);
    if (err || !cn_autodiff_needs(diff, forward->in[0]))
        return err;
    a.call.matmul = (struct cn_matmul){.rows = op->rows,
                                       .inner = op->cols,
                                       .cols = op->inner,
                                       .transpose_b = !op->transpose_b,
                                       .alpha = op->alpha};
    a.in[0] = dc;
    a.in[1] = forward->in[1];
    return cn_autodiff_emit(diff, &a, forward->in[0]);
}

static cn_err conv_grad(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    const struct cn_window *w = &forward->call.window;
    struct cn_node weight = cn_graph_node(CN_OP_CONV_GRAD_WEIGHT);
    struct cn_node input = cn_graph_node(CN_OP_CONV_GRAD_INPUT);
    cn_err err = CN_OK;

    if (w->relu)
        err = add_map_gradient(diff, relu_of(diff, forward->out[0]), forward->out[0], &dy);
    if (!err)
        err = cn_autodiff_bias(diff,
                               (struct cn_bias){.rows = 1,
                                                .channels = w->channels_out,
                                                .inner = (size_t)w->out[0] * w->out[1],
                                                .scale = 1},
                               dy, forward->in[2]);
    if (err)
        return err;
    weight.call.window = *w;
    weight.in[0] = dy;
    weight.in[1] = forward->in[0];
    if (cn_autodiff_needs(diff, forward->in[1]))
        err = cn_autodiff_emit(diff, &weight, forward->in[1]);
    if (err || !cn_autodiff_needs(diff, forward->in[0]))
        return err;
    input.call.window = *w;
    input.in[0] = dy;
    input.in[1] = forward->in[1];
    return cn_autodiff_emit(diff, &input, forward->in[0]);
}

static cn_err max_pool_grad(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_MAX_POOL_GRAD);

    node.call.window = forward->call.window;
    node.in[0] = dy;
    node.in[1] = forward->out[1];
    return cn_autodiff_emit(diff, &node, forward->in[0]);
}

static cn_err average_pool_grad(struct cn_autodiff *diff, const struct cn_node *forward,
                                uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_AVERAGE_POOL_GRAD);

    node.call.window = forward->call.window;
    node.in[0] = dy;
    return cn_autodiff_emit(diff, &node, forward->in[0]);
}

// The function of each forward op; see cn_autodiff_fn.
static cn_autodiff_fn *const gradients[CN_OP_COUNT] = {
    [CN_OP_MATMUL] = matmul_grad,
    [CN_OP_CONV] = conv_grad,
    [CN_OP_MAX_POOL] = max_pool_grad,
    [CN_OP_AVERAGE_POOL] = average_pool_grad,
    [CN_OP_MAP] = cn_autodiff_maps,
    [CN_OP_COMBINE] = cn_autodiff_combine,
    [CN_OP_WHERE] = cn_autodiff_combine,
    [CN_OP_COMBINE_GRAD] = cn_autodiff_sum,
    [CN_OP_COPY] = cn_autodiff_copy,
    [CN_OP_FILL] = cn_autodiff_fill,
    [CN_OP_GATHER] = cn_autodiff_gather,
    [CN_OP_PRODUCTS] = cn_autodiff_products,
    [CN_OP_SOFTMAX] = cn_autodiff_softmax,
    [CN_OP_NORM] = cn_autodiff_norm,
    [CN_OP_BATCH_NORM] = cn_autodiff_batch_norm,
    [CN_OP_DROPOUT] = cn_autodiff_dropout,
    [CN_OP_CONV_GRAD_INPUT] = cn_autodiff_conv_transpose,
    [CN_OP_RESIZE] = cn_autodiff_resize,
    [CN_OP_EXTREME] = cn_autodiff_extreme,
    [CN_OP_RECURRENT] = cn_autodiff_recurrent,
    [CN_OP_ATTENTION] = cn_autodiff_attention,
};

// Returns whether nodes may read a second output of this node. Only the last cell of a recurrent
// layer is such an output.
static bool has_cell(const struct cn_node *node)
{
    return node->call.op == CN_OP_RECURRENT && node->out[2] != CN_GRAPH_NONE;
}

static void mark_needed(struct cn_autodiff *diff)
{
    const struct cn_graph *graph = diff->graph;

    for (size_t i = 0; i < graph->value_count; i++)
        diff->needed[i] = graph->values[i].kind == CN_VALUE_PARAM && !graph->values[i].frozen;
    for (size_t i = 0; i < graph->loss; i++) {
        const struct cn_node *node = &graph->nodes[i];

        for (int j = 0; j < CN_CALL_INPUTS; j++)
            if (cn_autodiff_needs(diff, node->in[j]) &&
                !graph->values[cn_graph_root(graph, node->out[0])].frozen) {
                diff->needed[cn_graph_root(graph, node->out[0])] = true;
                if (has_cell(node))
                    diff->needed[cn_graph_root(graph, node->out[2])] = true;
            }
    }
}

static cn_err walk_back(struct cn_autodiff *diff)
{
    struct cn_graph *graph = diff->graph;

    diff->gradient[cn_graph_root(graph, graph->output)] = graph->nodes[graph->loss].out[0];
    for (uint32_t i = 0; i <= graph->loss; i++)
        graph->nodes[i].origin = i;
    for (size_t i = graph->loss; i-- > 0;) {
        struct cn_node node = graph->nodes[i]; // a copy: emitting may move the list
        uint32_t dy = diff->gradient[cn_graph_root(graph, node.out[0])];
        cn_err err = CN_OK;

        graph->origin = (uint32_t)i;
        if (dy == CN_GRAPH_NONE && has_cell(&node))
            err = cn_autodiff_recurrent_only_cell(diff, &node, &dy);
        if (err)
            return err;
        if (dy == CN_GRAPH_NONE || !cn_autodiff_needs(diff, node.out[0]))
            continue;
        err = gradients[node.call.op](diff, &node, dy);
        if (err)
            return err;
    }
    return CN_OK;
}

cn_err cn_autodiff_run(struct cn_graph *graph)
{
    // The arrays cover the forward pass only: values added later have no gradient.
    size_t count = graph->value_count;
    struct cn_autodiff diff = {
        .graph = graph,
        .needed = calloc(count, sizeof(*diff.needed)),
        .gradient = malloc(count * sizeof(*diff.gradient)),
        .assembled = malloc(count * sizeof(*diff.assembled)),
        .written = calloc(count, sizeof(*diff.written)),
    };
    cn_err err = CN_ENOMEM;

    if (diff.needed && diff.gradient && diff.assembled && diff.written) {
        for (size_t i = 0; i < count; i++)
            diff.gradient[i] = diff.assembled[i] = CN_GRAPH_NONE;
        mark_needed(&diff);
        err = cn_autodiff_statistics(&diff);
        if (!err)
            err = walk_back(&diff);
    }
    free(diff.needed);
    free(diff.gradient);
    free(diff.assembled);
    free(diff.written);
    return err;
}
