// Normalization over the batch, and Dropout.
#include <inttypes.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

// Returns whether the statistics of the batch are used. The job's choice comes before the file's.
// From opset 14 on the file has an attribute for it. In older files the node has more than one
// output in training only.
static bool is_training(const struct cn_import_node *node)
{
    if (node->graph->batch_norm != CN_BATCH_NORM_MODEL)
        return node->graph->batch_norm == CN_BATCH_NORM_TRAIN;
    if (node->onnx->opset >= 14)
        return cn_import_int(node, "training_mode", 0) != 0;
    return node->node->output_count > 1;
}

static cn_err check_batch_norm(const struct cn_import_node *node, bool training)
{
    const struct cn_value *x = cn_import_value(node, 0);

    if (!x->batched || x->rank < 2)
        return cn_import_refuse(node, "the input must be [batch, channels, ...]");
    for (size_t i = 1; i < 5; i++) {
        const struct cn_value *value = cn_import_value(node, i);

        if (value->batched || value->words != x->dims[1] ||
            (i > 2 && training && value->kind != CN_VALUE_PARAM))
            return cn_import_refuse(node, "input %zu must be a weight with %" PRIu64 " elements", i,
                                    x->dims[1]);
    }
    for (size_t i = 3; i < node->node->output_count; i++)
        if (node->onnx->opset >= 14 && node->node->outputs[i].size)
            return cn_import_refuse(node, "%zu outputs", node->node->output_count);
    return CN_OK;
}

// Marks the running statistics as updated by this node. ONNX's momentum is the share of the old
// value, CN_OP_STATISTIC's and PyTorch's is the share of the new one.
static cn_err claim_statistics(const struct cn_import_node *node)
{
    float momentum = 1 - cn_import_float(node, "momentum", 0.9f);

    if (!(momentum >= 0 && momentum <= 1))
        return cn_import_refuse(node, "momentum is %g, wanted 0 to 1", 1 - (double)momentum);
    for (size_t i = 3; i < 5; i++) {
        struct cn_value *statistic = &node->graph->values[cn_graph_root(node->graph, node->in[i])];

        // Two nodes cannot share statistics: each would have to see the other's update.
        if (statistic->momentum > 0)
            return cn_import_refuse(node,
                                    "two nodes in training mode share a running statistic; "
                                    "that is not supported (if the module shares none, export "
                                    "with dynamo=False or optimize=False)");
        statistic->momentum = momentum;
    }
    return CN_OK;
}

cn_err cn_import_batch_norm(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    struct cn_node norm = cn_graph_node(CN_OP_BATCH_NORM);
    struct cn_batch_norm *op = &norm.call.batch_norm;
    struct cn_value saved = {.kind = CN_VALUE_ACTIVATION, .rank = 2, .root = CN_GRAPH_NONE};
    cn_err err = check_batch_norm(node, is_training(node));

    if (err)
        return err;
    *op = (struct cn_batch_norm){.channels = x->dims[1],
                                 .inner = x->words / x->dims[1],
                                 .epsilon = cn_import_float(node, "epsilon", 1e-5f),
                                 .frozen = !is_training(node)};
    if (!(op->epsilon > 0))
        return cn_import_refuse(node, "epsilon is %g, wanted above 0", (double)op->epsilon);
    if (!op->frozen)
        err = claim_statistics(node);
    if (!err)
        err = cn_import_output(node, x->rank, x->dims);
    if (err)
        return err;
    saved.dims[0] = 2;
    saved.dims[1] = op->channels;
    err = cn_graph_add_value(node->graph, &saved, &norm.out[1]);
    for (size_t i = 0; !err && i < 5; i++)
        err = cn_import_as_floats(node, node->in[i], &norm.in[i]);
    norm.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &norm);
}

// Reads Dropout's ratio and mode. Both are inputs from opset 12 on; before, the ratio is an
// attribute.
static cn_err read_dropout(const struct cn_import_node *node, float *ratio, bool *training)
{
    *ratio = cn_import_float(node, "ratio", 0.5f);
    *training = false;
    if (cn_import_has(node, 1)) {
        const struct cn_value *value = cn_import_value(node, 1);

        if (value->kind != CN_VALUE_CONST || value->words != 1)
            return cn_import_refuse(node, "the ratio must be known before training");
        *ratio = node->graph->constants[value->offset];
    }
    if (cn_import_has(node, 2)) {
        const struct cn_value *value = cn_import_value(node, 2);

        if (value->kind != CN_VALUE_SHAPE || value->words != 1)
            return cn_import_refuse(node, "the training mode must be known before training");
        *training = node->graph->numbers[value->offset] != 0;
    }
    if (*training && !(*ratio >= 0 && *ratio < 1))
        return cn_import_refuse(node, "a ratio of %g, wanted at least 0 and below 1",
                                (double)*ratio);
    return CN_OK;
}

cn_err cn_import_dropout(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    struct cn_node dropout = cn_graph_node(CN_OP_DROPOUT);
    struct cn_dropout *op = &dropout.call.dropout;
    bool training;
    cn_err err;

    if (!x->batched)
        return cn_import_refuse(node, "the input must be computed from the samples");
    err = read_dropout(node, &op->rate, &training);
    if (err)
        return err;
    if (!training || op->rate == 0) {
        node->out = node->in[0];
        return CN_OK;
    }
    // The node's index is the same in every run of this model.
    op->node = (uint32_t)node->graph->node_count;
    op->count = x->words;
    err = cn_import_add(node, cn_import_value(node, 0), &node->out);
    if (err)
        return err;
    dropout.in[0] = node->in[0];
    dropout.out[0] = node->out;
    return cn_graph_add_node(node->graph, &dropout);
}
