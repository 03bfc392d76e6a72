// Normalization over the batch, and Dropout.
#include "runtime/engine/graph/autodiff_private.h"

cn_err cn_autodiff_batch_norm(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_BATCH_NORM_GRAD);
    uint32_t targets[4] = {forward->in[0], forward->in[1], forward->in[2], forward->in[5]};

    node.call.batch_norm = forward->call.batch_norm;
    node.in[0] = dy;
    node.in[1] = forward->in[0];
    node.in[2] = forward->in[1];
    node.in[3] = forward->out[1];
    if (node.call.batch_norm.relu)
        node.in[4] = forward->out[0];
    for (int i = 0; i < 4; i++)
        if (!cn_autodiff_needs(diff, targets[i]))
            targets[i] = CN_GRAPH_NONE;
    return cn_autodiff_emit_all(diff, &node, targets, 4);
}

// Lets the statistics of the batch be written where the gradients of the running statistics would
// be.
cn_err cn_autodiff_statistics(struct cn_autodiff *diff)
{
    struct cn_graph *graph = diff->graph;
    cn_err err = CN_OK;

    for (size_t i = 0; !err && i < graph->loss; i++) {
        const struct cn_call *call = &graph->nodes[i].call;

        if (call->op != CN_OP_BATCH_NORM || call->batch_norm.frozen ||
            !(graph->values[cn_graph_root(graph, graph->nodes[i].in[3])].momentum > 0))
            continue;
        graph->nodes[i].call.write = CN_WRITE_STEP;
        for (int j = 0; !err && j < 2; j++) {
            uint32_t statistic = graph->nodes[i].in[3 + j], gradient;

            err = cn_autodiff_parameter(diff, statistic, &gradient);
            graph->nodes[i].out[2 + j] = gradient;
            diff->written[cn_graph_root(graph, statistic)] = true;
        }
    }
    return err;
}

cn_err cn_autodiff_dropout(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_DROPOUT);

    node.call.dropout = forward->call.dropout;
    node.in[0] = dy;
    return cn_autodiff_emit(diff, &node, forward->in[0]);
}
