#include "runtime/engine/autodiff.h"

#include <assert.h>
#include <stdlib.h>

struct autodiff {
    struct cn_graph *graph;
    bool *needed;       // by root: a parameter, or computed from one
    uint32_t *gradient; // by root: the value that holds the gradient so far
    bool *written;      // by root of a parameter: some node has written its gradient
};

cn_err cn_autodiff_loss(struct cn_graph *graph, enum cn_loss loss)
{
    bool classes = loss == CN_LOSS_CROSS_ENTROPY;
    struct cn_node node = cn_graph_node(classes ? CN_OP_CROSS_ENTROPY : CN_OP_MSE);
    struct cn_value value = graph->values[graph->output];
    size_t outputs = value.words;
    cn_err err;

    node.call.loss.outputs = outputs;
    node.in[0] = graph->output;
    value.root = CN_GRAPH_NONE;
    value.kind = CN_VALUE_ACTIVATION;
    err = cn_graph_add_value(graph, &value, &node.out[0]);
    if (err)
        return err;
    value.kind = CN_VALUE_LABELS;
    if (classes)
        value.rank = 1;
    err = cn_graph_add_value(graph, &value, &graph->labels);
    if (err)
        return err;
    node.in[1] = graph->labels;
    graph->loss = graph->node_count;
    return cn_graph_add_node(graph, &node);
}

static bool is_needed(const struct autodiff *diff, uint32_t value)
{
    return value != CN_GRAPH_NONE && diff->needed[cn_graph_root(diff->graph, value)];
}

// A new activation of the size of like.
static cn_err add_activation(struct autodiff *diff, uint32_t like, uint32_t *index)
{
    struct cn_value value = diff->graph->values[like];

    value.kind = CN_VALUE_ACTIVATION;
    value.root = CN_GRAPH_NONE;
    return cn_graph_add_value(diff->graph, &value, index);
}

// Lets node write the gradient of a parameter.
static cn_err write_parameter(struct autodiff *diff, struct cn_node *node, uint32_t parameter)
{
    uint32_t root = cn_graph_root(diff->graph, parameter);
    struct cn_value value = diff->graph->values[root];
    cn_err err;

    if (diff->gradient[root] == CN_GRAPH_NONE) {
        value.kind = CN_VALUE_GRADIENT;
        value.root = CN_GRAPH_NONE;
        err = cn_graph_add_value(diff->graph, &value, &diff->gradient[root]);
        if (err)
            return err;
    }
    node->out[0] = diff->gradient[root];
    node->call.write = diff->written[root] ? CN_WRITE_ADD : CN_WRITE_STEP;
    diff->written[root] = true;
    return cn_graph_add_node(diff->graph, node);
}

// Records that part is a share of the gradient of an activation; shares add up.
static cn_err add_share(struct autodiff *diff, uint32_t activation, uint32_t part)
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
    err = add_activation(diff, part, &sum.out[0]);
    if (err)
        return err;
    diff->gradient[root] = sum.out[0];
    return cn_graph_add_node(diff->graph, &sum);
}

// Adds node as the maker of the gradient of target, which may be a parameter or an activation.
static cn_err emit(struct autodiff *diff, struct cn_node *node, uint32_t target)
{
    cn_err err;

    if (diff->graph->values[target].kind == CN_VALUE_PARAM)
        return write_parameter(diff, node, target);
    err = add_activation(diff, target, &node->out[0]);
    if (!err)
        err = cn_graph_add_node(diff->graph, node);
    return err ? err : add_share(diff, target, node->out[0]);
}

// dx = dy * f'(x), from y.
static cn_err emit_map(struct autodiff *diff, struct cn_map map, uint32_t y, uint32_t *dy)
{
    struct cn_node node = cn_graph_node(CN_OP_MAP_GRAD);
    cn_err err;

    node.call.map = map;
    node.in[0] = *dy;
    node.in[1] = y;
    err = add_activation(diff, y, &node.out[0]);
    if (err)
        return err;
    *dy = node.out[0];
    return cn_graph_add_node(diff->graph, &node);
}

static cn_err emit_bias(struct autodiff *diff, struct cn_bias bias, uint32_t dy, uint32_t target)
{
    struct cn_node node = cn_graph_node(CN_OP_BIAS_GRAD);

    if (!is_needed(diff, target))
        return CN_OK;
    node.call.bias = bias;
    node.in[0] = dy;
    return emit(diff, &node, target);
}

static struct cn_map relu_of(const struct autodiff *diff, uint32_t value)
{
    return (struct cn_map){.kind = CN_MAP_RELU, .count = diff->graph->values[value].words};
}

// c = alpha a b: da = alpha dc b', db = alpha a' dc.
static cn_err matmul_grad(struct autodiff *diff, const struct cn_node *forward, uint32_t dc)
{
    const struct cn_matmul *op = &forward->call.matmul;
    struct cn_node a = cn_graph_node(CN_OP_MATMUL), b = cn_graph_node(CN_OP_MATMUL);
    cn_err err = CN_OK;

    assert(!op->transpose_a && !op->inner_batched);
    if (op->relu)
        err = emit_map(diff, relu_of(diff, forward->out[0]), forward->out[0], &dc);
    if (!err)
        err = emit_bias(
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
    if (is_needed(diff, forward->in[1]))
        err = emit(diff, &b, forward->in[1]);
    if (err || !is_needed(diff, forward->in[0]))
        return err;
    a.call.matmul = (struct cn_matmul){.rows = op->rows,
                                       .inner = op->cols,
                                       .cols = op->inner,
                                       .transpose_b = !op->transpose_b,
                                       .alpha = op->alpha};
    a.in[0] = dc;
    a.in[1] = forward->in[1];
    return emit(diff, &a, forward->in[0]);
}

static cn_err conv_grad(struct autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    const struct cn_window *w = &forward->call.window;
    struct cn_node weight = cn_graph_node(CN_OP_CONV_GRAD_WEIGHT);
    struct cn_node input = cn_graph_node(CN_OP_CONV_GRAD_INPUT);
    cn_err err = CN_OK;

    if (w->relu)
        err = emit_map(diff, relu_of(diff, forward->out[0]), forward->out[0], &dy);
    if (!err)
        err = emit_bias(diff,
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
    if (is_needed(diff, forward->in[1]))
        err = emit(diff, &weight, forward->in[1]);
    if (err || !is_needed(diff, forward->in[0]))
        return err;
    input.call.window = *w;
    input.in[0] = dy;
    input.in[1] = forward->in[1];
    return emit(diff, &input, forward->in[0]);
}

static cn_err max_pool_grad(struct autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_MAX_POOL_GRAD);

    node.call.window = forward->call.window;
    node.in[0] = dy;
    node.in[1] = forward->out[1];
    return emit(diff, &node, forward->in[0]);
}

static cn_err average_pool_grad(struct autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_AVERAGE_POOL_GRAD);

    node.call.window = forward->call.window;
    node.in[0] = dy;
    return emit(diff, &node, forward->in[0]);
}

static cn_err map_grad(struct autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    cn_err err = emit_map(diff, forward->call.map, forward->out[0], &dy);

    return err ? err : add_share(diff, forward->in[0], dy);
}

static cn_err combine_side(struct autodiff *diff, const struct cn_node *forward, uint32_t dc,
                           int side)
{
    const struct cn_combine *op = &forward->call.combine;
    const struct cn_graph *graph = diff->graph;
    struct cn_node node = cn_graph_node(CN_OP_COMBINE_GRAD);
    uint32_t target = forward->in[side];

    if (!is_needed(diff, target))
        return CN_OK;
    if (op->kind == CN_COMBINE_ADD && graph->values[target].kind == CN_VALUE_ACTIVATION &&
        graph->values[target].words == graph->values[dc].words)
        return add_share(diff, target, dc);
    node.call.combine = *op;
    for (int d = 0; side == 1 && d < CN_COMBINE_RANK_MAX; d++) {
        node.call.combine.a[d] = op->b[d];
        node.call.combine.b[d] = op->a[d];
    }
    node.call.combine.scale = op->kind == CN_COMBINE_SUB && side == 1 ? -1 : 1;
    node.in[0] = dc;
    if (op->kind == CN_COMBINE_MUL)
        node.in[1] = forward->in[1 - side];
    return emit(diff, &node, target);
}

static cn_err combine_grad(struct autodiff *diff, const struct cn_node *forward, uint32_t dc)
{
    cn_err err = combine_side(diff, forward, dc, 0);

    return err ? err : combine_side(diff, forward, dc, 1);
}

// What each forward op adds to the backward pass, given the gradient of its output.
static cn_err (*const gradients[CN_OP_COUNT])(struct autodiff *, const struct cn_node *,
                                              uint32_t) = {
    [CN_OP_MATMUL] = matmul_grad,     [CN_OP_CONV] = conv_grad,
    [CN_OP_MAX_POOL] = max_pool_grad, [CN_OP_AVERAGE_POOL] = average_pool_grad,
    [CN_OP_MAP] = map_grad,           [CN_OP_COMBINE] = combine_grad,
};

static void mark_needed(struct autodiff *diff)
{
    const struct cn_graph *graph = diff->graph;

    for (size_t i = 0; i < graph->value_count; i++)
        diff->needed[i] = graph->values[i].kind == CN_VALUE_PARAM;
    for (size_t i = 0; i < graph->loss; i++) {
        const struct cn_node *node = &graph->nodes[i];

        for (int j = 0; j < CN_CALL_INPUTS; j++)
            if (is_needed(diff, node->in[j]))
                diff->needed[cn_graph_root(graph, node->out[0])] = true;
    }
}

static cn_err walk_back(struct autodiff *diff)
{
    struct cn_graph *graph = diff->graph;

    mark_needed(diff);
    diff->gradient[cn_graph_root(graph, graph->output)] = graph->nodes[graph->loss].out[0];
    for (size_t i = graph->loss; i-- > 0;) {
        struct cn_node node = graph->nodes[i]; // a copy: emitting may move the list
        uint32_t dy = diff->gradient[cn_graph_root(graph, node.out[0])];
        cn_err err;

        if (dy == CN_GRAPH_NONE || !is_needed(diff, node.out[0]))
            continue;
        err = gradients[node.call.op](diff, &node, dy);
        if (err)
            return err;
    }
    return CN_OK;
}

cn_err cn_autodiff_run(struct cn_graph *graph)
{
    // Only values of the forward pass are looked up; new ones have no gradient of their own.
    size_t count = graph->value_count;
    struct autodiff diff = {
        .graph = graph,
        .needed = calloc(count, sizeof(*diff.needed)),
        .gradient = malloc(count * sizeof(*diff.gradient)),
        .written = calloc(count, sizeof(*diff.written)),
    };
    cn_err err = CN_ENOMEM;

    if (diff.needed && diff.gradient && diff.written) {
        for (size_t i = 0; i < count; i++)
            diff.gradient[i] = CN_GRAPH_NONE;
        err = walk_back(&diff);
    }
    free(diff.needed);
    free(diff.gradient);
    free(diff.written);
    return err;
}
