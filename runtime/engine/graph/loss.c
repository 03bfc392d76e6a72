#include "runtime/engine/graph/loss.h"

#include <stdlib.h>

#include "runtime/base/words.h"

static const enum cn_op ops[] = {
    [CN_LOSS_CROSS_ENTROPY] = CN_OP_CROSS_ENTROPY,
    [CN_LOSS_MSE] = CN_OP_MSE,
    [CN_LOSS_BINARY_ENTROPY] = CN_OP_BINARY_ENTROPY,
    [CN_LOSS_HUBER] = CN_OP_HUBER,
    [CN_LOSS_L1] = CN_OP_HUBER,
    [CN_LOSS_OUTPUT] = CN_OP_MEAN_LOSS,
};

// Adds the weights of the classes as a constant.
static cn_err add_weights(struct cn_graph *graph, const char *words, size_t outputs,
                          struct cn_diag *diag, uint32_t *index)
{
    struct cn_value value = {.kind = CN_VALUE_CONST, .rank = 1, .root = CN_GRAPH_NONE};
    size_t count = cn_words_count(words), first;
    char word[CN_WORDS_SIZE];
    cn_err err = CN_OK;

    if (!count)
        return CN_OK;
    if (count != outputs) {
        cn_diag_add(diag, "loss.weights has %zu numbers; the model has %zu classes", count,
                    outputs);
        return CN_ENOTSUP;
    }
    for (size_t i = 0; !err && cn_words_next(&words, word, sizeof(word)); i++) {
        float weight = strtof(word, NULL);

        err = cn_graph_add_constants(graph, &weight, 1, &first);
        if (i == 0)
            value.offset = first;
    }
    value.dims[0] = count;
    return err ? err : cn_graph_add_value(graph, &value, index);
}

// Fills in the shape of the loss. The output is [batch, classes] or [batch, ..., classes]; with
// classes_first it is [batch, classes, ...].
static cn_err add_entropy(struct cn_graph *graph, const struct cn_rules *rules,
                          struct cn_diag *diag, struct cn_node *node, struct cn_value *labels)
{
    const struct cn_value *output = &graph->values[graph->output];
    uint32_t axis = rules->classes_first ? 1 : output->rank - 1;
    size_t outputs;

    if (output->rank < 2 || output->words > INT32_MAX || output->batch_axis == axis ||
        (rules->classes_first &&
         (output->batch_axis || (output->rank > 2 && cn_graph_batch_repeats(output) > 1)))) {
        cn_diag_add(diag,
                    "cross-entropy needs an output of [batch, classes] or more dimensions; it has "
                    "rank %u and %zu values for each sample",
                    output->rank, output->words);
        return CN_ENOTSUP;
    }
    outputs = output->dims[axis];
    node->call.loss = (struct cn_loss_call){
        .outputs = outputs,
        .rows = output->words / outputs,
        .classes_first = rules->classes_first && output->rank > 2,
        .ignore = rules->ignore[0] ? CN_LABEL_IGNORED : INT32_MIN,
        .smoothing = (float)rules->smoothing,
    };
    if (labels->kind == CN_VALUE_LABELS) {
        labels->rank = 2;
        labels->dims[0] = graph->batch;
        labels->dims[1] = node->call.loss.rows;
        labels->batch_axis = 0;
        labels->batch_repeats = 1;
    }
    return add_weights(graph, rules->weights, outputs, diag, &node->in[2]);
}

// Adds the loss in place of the file's SoftmaxCrossEntropyLoss, whose classes are in dimension 1.
static cn_err add_head_entropy(struct cn_graph *graph, const struct cn_rules *rules,
                               struct cn_diag *diag, struct cn_node *node)
{
    struct cn_rules first = *rules;
    struct cn_value labels = graph->values[graph->head_labels];
    cn_err err;

    first.classes_first = true;
    node->call.op = CN_OP_CROSS_ENTROPY;
    err = add_entropy(graph, &first, diag, node, &labels);
    if (err)
        return err;
    if (node->call.loss.rows != labels.words) {
        cn_diag_add(diag, "the loss has %zu rows a sample and %zu labels", node->call.loss.rows,
                    labels.words);
        return CN_ENOTSUP;
    }
    node->call.loss.ignore = (int32_t)graph->head_ignore;
    node->in[1] = graph->head_labels;
    node->in[2] = graph->head_weights;
    return CN_OK;
}

cn_err cn_loss_add(struct cn_graph *graph, enum cn_loss loss, const struct cn_rules *rules,
                   struct cn_diag *diag)
{
    struct cn_node node = cn_graph_node(ops[loss]);
    struct cn_value value;
    cn_err err = CN_OK;

    value = graph->values[graph->output];
    node.call.loss = (struct cn_loss_call){.outputs = value.words, .rows = 1};
    if (loss == CN_LOSS_HUBER)
        node.call.loss.delta = rules->delta > 0 ? (float)rules->delta : 1;
    node.in[0] = graph->output;
    value.root = CN_GRAPH_NONE;
    value.kind = CN_VALUE_ACTIVATION;
    err = cn_graph_add_value(graph, &value, &node.out[0]);
    value.kind = CN_VALUE_LABELS;
    if (!err && loss == CN_LOSS_CROSS_ENTROPY)
        err = add_entropy(graph, rules, diag, &node, &value);
    graph->labels = CN_GRAPH_NONE;
    if (!err && loss != CN_LOSS_OUTPUT)
        err = cn_graph_add_value(graph, &value, &graph->labels);
    if (!err && graph->head == CN_HEAD_ENTROPY)
        err = add_head_entropy(graph, rules, diag, &node);
    else
        node.in[1] = graph->labels;
    if (err)
        return err;
    graph->loss = graph->node_count;
    return cn_graph_add_node(graph, &node);
}
