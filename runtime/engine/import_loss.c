// A model that computes its loss itself. What it makes of the whole batch, a mean or a sum, is kept
// as a number for each sample: the mean of those is the loss. That holds for sums of such numbers
// and for multiples, so these are what may become of them.
#include <string.h>

#include "runtime/engine/import_emit.h"

static bool is_op(const struct cn_import_node *node, const char *const *names)
{
    for (; *names; names++)
        if (cn_text_equal(node->node->op, *names))
            return true;
    return false;
}

// The mean or sum of each sample's elements, whatever their dims.
static cn_err reduce_samples(struct cn_import_node *node, const char *op, uint32_t in,
                             uint32_t *out)
{
    const int64_t axis = 1;
    struct cn_value flat;
    uint32_t view;
    cn_err err = cn_import_as_floats(node, in, &in);

    if (err)
        return err;
    flat = node->graph->values[in];
    flat.rank = 2;
    flat.dims[0] = node->graph->batch;
    flat.dims[1] = flat.words;
    flat.batch_axis = 0;
    flat.batch_repeats = 1;
    err = cn_graph_add_value(node->graph, &flat, &view);
    return err ? err : cn_import_apply(node, op, "axes", &axis, 1, &view, 1, out);
}

static enum cn_over_batch over_batch(const struct cn_import_node *node, size_t input)
{
    return cn_import_has(node, input) ? cn_import_value(node, input)->over_batch
                                      : CN_OVER_BATCH_NONE;
}

// Whether the node reduces all dimensions of what is made from the samples.
static cn_err is_reduction(const struct cn_import_node *node, bool *is)
{
    static const char *const names[] = {"ReduceMean", "ReduceSum", NULL};
    bool marked[CN_GRAPH_RANK_MAX] = {false};
    size_t count;
    cn_err err;

    *is = is_op(node, names) && cn_import_value(node, 0)->batched &&
          !cn_import_is_known(cn_import_value(node, 0));
    if (!*is)
        return CN_OK;
    err = cn_import_axes(node, 1, cn_import_value(node, 0)->rank, marked, &count);
    *is = count == cn_import_value(node, 0)->rank ||
          (!count && !cn_import_int(node, "noop_with_empty_axes", 0));
    return err;
}

// A sum over an open batch, divided by a multiple of the batch, is a mean.
static bool divides_by_batch(const struct cn_import_node *node, struct cn_map *scale)
{
    const struct cn_value *divisor = cn_import_value(node, 1);
    double times;

    if (!cn_text_equal(node->node->op, "Div") || over_batch(node, 0) != CN_OVER_BATCH_SUM ||
        node->graph->batch != CN_GRAPH_BATCH || !cn_import_is_known(divisor) || divisor->words != 1)
        return false;
    times = cn_import_known_float(node->graph, divisor, 0) / CN_GRAPH_BATCH;
    *scale = (struct cn_map){.kind = CN_MAP_SCALE, .alpha = (float)(1 / times)};
    return times >= 1 && times < 0x1p31 && times == (double)(uint32_t)times;
}

// Whether the result is what the file means, for each sample: all that is added is of one kind, and
// only one factor depends on the samples.
static bool stays_linear(const struct cn_import_node *node, enum cn_over_batch kind)
{
    static const char *const sums[] = {"Add", "Sub", "Sum", NULL};
    static const char *const products[] = {"Mul", "Div", NULL};
    size_t others = 0, of_samples = 0;

    for (size_t i = 0; i < node->in_count; i++) {
        const struct cn_value *value = cn_import_value(node, i);

        of_samples += value->batched;
        others += value->over_batch != kind;
        if (value->batched && value->over_batch != kind)
            return false;
    }
    if (is_op(node, sums))
        return kind == CN_OVER_BATCH_MEAN || !others;
    return is_op(node, products) && of_samples == 1 &&
           (cn_text_equal(node->node->op, "Mul") || over_batch(node, 0) == kind);
}

static cn_err import_further(struct cn_import_node *node, enum cn_over_batch kind,
                             cn_import_fn *import)
{
    static const char *const views[] = {"Identity", "Cast",    "Squeeze", "Unsqueeze",
                                        "Reshape",  "Flatten", NULL};
    static const char *const negation[] = {"Neg", NULL};
    struct cn_map scale;
    cn_err err;

    if (is_op(node, views)) {
        node->out = node->in[0];
        return CN_OK;
    }
    if (node->in_count == 2 && divides_by_batch(node, &scale)) {
        kind = CN_OVER_BATCH_MEAN;
        err = cn_import_emit_map(node, scale, node->in[0], &node->out);
    } else if (is_op(node, negation) || stays_linear(node, kind)) {
        err = import(node);
    } else {
        return cn_import_refuse(node, "what is a mean or a sum over the batch may only be added to "
                                      "others of its kind and multiplied with what no sample has "
                                      "a part in");
    }
    if (!err)
        node->graph->values[node->out].over_batch = kind;
    return err;
}

cn_err cn_import_whole_batch(struct cn_import_node *node, cn_import_fn *import)
{
    enum cn_over_batch kind = CN_OVER_BATCH_NONE;
    bool is;
    cn_err err;

    if (!node->graph->loss_output)
        return import(node);
    for (size_t i = 0; i < node->in_count; i++)
        kind = over_batch(node, i) ? over_batch(node, i) : kind;
    if (kind)
        return import_further(node, kind, import);
    err = is_reduction(node, &is);
    if (err || !is)
        return err ? err : import(node);
    kind = cn_text_equal(node->node->op, "ReduceSum") ? CN_OVER_BATCH_SUM : CN_OVER_BATCH_MEAN;
    err = reduce_samples(node, kind == CN_OVER_BATCH_SUM ? "ReduceSum" : "ReduceMean", node->in[0],
                         &node->out);
    if (!err)
        node->graph->values[node->out].over_batch = kind;
    return err;
}

// The node that makes a value, seen through those that only give it other dims; NULL for none.
static const struct cn_onnx_node *maker_of(const struct cn_onnx *onnx, struct cn_text name)
{
    const struct cn_onnx_node *maker = NULL;

    // The nodes are in an order in which they can run.
    for (size_t i = onnx->node_count; i-- > 0;) {
        const struct cn_onnx_node *node = &onnx->nodes[i];
        bool is_view = cn_text_equal(node->op, "Reshape") || cn_text_equal(node->op, "Flatten") ||
                       cn_text_equal(node->op, "Transpose") || cn_text_equal(node->op, "Identity");

        if (!node->output_count || !node->input_count || node->outputs[0].size != name.size ||
            memcmp(node->outputs[0].data, name.data, name.size) != 0)
            continue;
        maker = node;
        if (!is_view)
            break;
        name = node->inputs[0];
    }
    return maker;
}

// Cross-entropy of logarithms of probabilities is that of logits: the softmax of a LogSoftmax is
// that of its input, and so is the gradient.
static cn_err check_entropy(const struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0), *labels = cn_import_value(node, 1);
    const struct cn_onnx_attribute *reduction = cn_onnx_attribute_find(node->node, "reduction");
    const struct cn_onnx_node *maker;

    if (!node->graph->loss_output)
        return cn_import_refuse(node, "the model computes a loss: name it as loss.output in the "
                                      "job, or export the model without it");
    if (reduction && !cn_text_equal(reduction->s, "mean"))
        return cn_import_refuse(node, "its reduction must be mean");
    if (x->rank < 2 || !x->batched || x->batch_axis || !labels->batched || !labels->integers)
        return cn_import_refuse(node, "wanted scores of [batch, classes, ...] and integer labels "
                                      "computed from the samples");
    maker = maker_of(node->onnx, node->node->inputs[0]);
    if (cn_text_equal(node->node->op, "NegativeLogLikelihoodLoss") &&
        (!maker || !cn_text_equal(maker->op, "LogSoftmax")))
        return cn_import_refuse(node, "its input must come from LogSoftmax");
    return CN_OK;
}

// The loss itself: the node is left out, and its input becomes the output of the graph.
static cn_err import_head(struct cn_import_node *node)
{
    struct cn_graph *graph = node->graph;
    uint32_t labels = cn_graph_root(graph, node->in[1]);
    cn_err err = CN_OK;

    if (graph->values[labels].kind != CN_VALUE_INPUT)
        return cn_import_refuse(node, "its labels must be an input of the model");
    graph->head_weights = CN_GRAPH_NONE;
    if (cn_import_has(node, 2)) {
        if (cn_import_value(node, 2)->batched ||
            cn_import_value(node, 2)->words != cn_import_value(node, 0)->dims[1])
            return cn_import_refuse(node, "wanted a weight for each class");
        err = cn_import_as_floats(node, node->in[2], &graph->head_weights);
    }
    graph->head = CN_HEAD_ENTROPY;
    graph->head_labels = labels;
    graph->head_ignore = cn_import_int(node, "ignore_index", INT32_MIN);
    if (!err && graph->head_ignore != (int32_t)graph->head_ignore)
        err = cn_import_refuse(node, "ignore_index %lld is out of range",
                               (long long)graph->head_ignore);
    node->out = node->in[0];
    return err;
}

// A part of the loss: the mean over a sample's labels, each of which counts.
static cn_err import_term(struct cn_import_node *node)
{
    const int64_t axis = 1;
    uint32_t in[2];
    cn_err err;

    if (cn_import_has(node, 2))
        return cn_import_refuse(node, "weights of classes are supported only where the "
                                      "cross-entropy is the whole loss");
    err = cn_import_apply(node, "LogSoftmax", "axis", &axis, 1, node->in, 1, &in[0]);
    if (!err)
        err = cn_import_apply(node, "Unsqueeze", "axes", &axis, 1, node->in + 1, 1, &in[1]);
    if (!err)
        err = cn_import_apply(node, "GatherElements", "axis", &axis, 1, in, 2, &in[0]);
    if (!err)
        err = cn_import_apply(node, "Neg", NULL, NULL, 0, in, 1, &in[0]);
    if (!err)
        err = reduce_samples(node, "ReduceMean", in[0], &node->out);
    if (!err)
        node->graph->values[node->out].over_batch = CN_OVER_BATCH_MEAN;
    return err;
}

cn_err cn_import_entropy(struct cn_import_node *node)
{
    struct cn_text output = node->node->output_count ? node->node->outputs[0] : (struct cn_text){0};
    cn_err err = check_entropy(node);

    if (err)
        return err;
    return cn_text_equal(output, node->graph->loss_output) ? import_head(node) : import_term(node);
}
