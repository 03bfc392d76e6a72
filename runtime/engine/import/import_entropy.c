// Cross-entropy in a model that computes its loss itself: the loss as a whole, or a part of it.
#include <inttypes.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

// Returns the node that makes a value, skipping nodes that only change its dims; NULL for none.
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

// Cross-entropy of log-probabilities equals cross-entropy of logits, with the same gradient,
// because softmax(LogSoftmax(x)) = softmax(x).
static cn_err check_entropy(const struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0), *labels = cn_import_value(node, 1);
    const struct cn_onnx_node *maker;

    if (!node->graph->loss_output)
        return cn_import_refuse(node, "the model computes a loss: name it as loss.output in the "
                                      "job, or export the model without it");
    if (x->rank < 2 || !x->batched || x->batch_axis || !labels->batched || !labels->integers)
        return cn_import_refuse(node, "wanted scores of [batch, classes, ...] and integer labels "
                                      "computed from the samples");
    if (cn_import_has(node, 2) &&
        (cn_import_value(node, 2)->batched || cn_import_value(node, 2)->words != x->dims[1]))
        return cn_import_refuse(node, "its weights must be one number for each class");
    if (node->node->output_count > 1 && node->node->outputs[1].size)
        return cn_import_refuse(node, "the logarithms as a second output are not supported");
    maker = maker_of(node->onnx, node->node->inputs[0]);
    if (cn_text_equal(node->node->op, "NegativeLogLikelihoodLoss") &&
        (!maker || !cn_text_equal(maker->op, "LogSoftmax")))
        return cn_import_refuse(node, "its input must come from LogSoftmax");
    return CN_OK;
}

// Returns the weights of the classes. They are constants: no gradient goes through them.
static cn_err take_weights(struct cn_import_node *node, uint32_t *weights)
{
    const struct cn_map same = {.kind = CN_MAP_SCALE, .alpha = 1};
    cn_err err = cn_import_as_floats(node, node->in[2], weights);

    if (err || cn_import_is_known(&node->graph->values[*weights]))
        return err;
    err = cn_import_emit_map(node, same, *weights, weights);
    if (!err)
        node->graph->values[*weights].frozen = true;
    return err;
}

// Notes which class numbers an input may have. If several losses read it, all of them must have its
// classes, and a number is ignored only if all ignore it.
static void note_classes(struct cn_graph *graph, size_t input, size_t count, int64_t ignore)
{
    struct cn_input_classes *classes = &graph->classes[input];

    if (classes->count && classes->ignore != ignore)
        ignore = INT64_MIN;
    if (!classes->count || count < classes->count)
        classes->count = count;
    classes->ignore = ignore;
}

// Imports the loss itself: leaves the node out, and makes its input the output of the graph.
static cn_err import_head(struct cn_import_node *node)
{
    struct cn_graph *graph = node->graph;
    uint32_t labels = cn_graph_root(graph, node->in[1]);
    cn_err err = CN_OK;

    if (graph->values[labels].kind != CN_VALUE_INPUT)
        return cn_import_refuse(node, "its labels must be an input of the model");
    graph->head_weights = CN_GRAPH_NONE;
    if (cn_import_has(node, 2))
        err = cn_import_as_floats(node, node->in[2], &graph->head_weights);
    graph->head = CN_HEAD_ENTROPY;
    graph->head_labels = labels;
    graph->head_ignore = cn_import_int(node, "ignore_index", INT32_MIN);
    if (!err && graph->head_ignore != (int32_t)graph->head_ignore)
        err =
            cn_import_refuse(node, "ignore_index %" PRId64 " is out of range", graph->head_ignore);
    note_classes(graph, graph->values[labels].offset, (size_t)cn_import_value(node, 0)->dims[1],
                 graph->head_ignore);
    node->out = node->in[0];
    return err;
}

// A cross-entropy that is a part of the loss, or a number for each label.
struct term {
    uint32_t labels;  // class numbers; 0 in place of labels that do not count
    uint32_t counted; // 1 or 0 for each label; CN_GRAPH_NONE where all count
    uint32_t weights; // weights of the classes; CN_GRAPH_NONE for none
    bool is_input;    // the labels are an input of the model: the trainer can count them
    struct cn_fact fact;
};

static cn_err add_integer(struct cn_import_node *node, int64_t number, uint32_t *out)
{
    const struct cn_value like = {0};

    return cn_import_add_known(node, &like, &number, NULL, out);
}

// Adds 1 for labels for which this comparison with a number holds, else 0.
static cn_err compare(struct cn_import_node *node, enum cn_combine_kind kind, int64_t number,
                      uint32_t *out)
{
    uint32_t known;
    cn_err err = add_integer(node, number, &known);

    return err ? err : cn_import_emit_combine(node, kind, node->in[1], known, out);
}

// Replaces labels that do not count by class 0 with a weight of 0.
static cn_err leave_out_ignored(struct cn_import_node *node, struct term *term)
{
    const struct cn_map not = {.kind = CN_MAP_NOT};
    cn_err err = compare(node, CN_COMBINE_EQUAL, term->fact.ignore, &term->counted);

    if (!err)
        err = cn_import_emit_map(node, not, term->counted, &term->counted);
    return err ? err
               : cn_import_emit_combine(node, CN_COMBINE_MUL, node->in[1], term->counted,
                                        &term->labels);
}

// All labels that the model computes must count. Labels below 0 are made larger than any class: as
// an index, a label below 0 would count from the end.
static cn_err forbid_negative(struct cn_import_node *node, struct term *term)
{
    const struct cn_map far = {.kind = CN_MAP_SCALE, .alpha = 0x1p30f};
    uint32_t beyond;
    cn_err err = compare(node, CN_COMBINE_LESS, 0, &beyond);

    if (!err)
        err = cn_import_emit_map(node, far, beyond, &beyond);
    return err ? err
               : cn_import_emit_combine(node, CN_COMBINE_ADD, node->in[1], beyond, &term->labels);
}

static cn_err read_term(struct cn_import_node *node, bool mean, struct term *term)
{
    const struct cn_value *labels = cn_import_value(node, 1);
    uint32_t root = cn_graph_root(node->graph, node->in[1]);
    uint64_t classes = cn_import_value(node, 0)->dims[1];
    bool may_be_ignored;
    cn_err err = CN_OK;

    *term = (struct term){.counted = CN_GRAPH_NONE, .weights = CN_GRAPH_NONE};
    term->is_input = node->graph->values[root].kind == CN_VALUE_INPUT &&
                     node->graph->values[root].words == labels->words;
    term->fact = (struct cn_fact){
        .kind = CN_FACT_COUNTED,
        .labels = term->is_input ? (uint32_t)node->graph->values[root].offset : 0,
        .classes = (size_t)classes,
        .ignore = cn_import_int(node, "ignore_index", INT64_MIN),
    };
    if (term->is_input)
        note_classes(node->graph, term->fact.labels, term->fact.classes, term->fact.ignore);
    may_be_ignored = term->fact.ignore >= 0 && (uint64_t)term->fact.ignore < classes;
    if (!term->is_input && mean && (may_be_ignored || cn_import_has(node, 2)))
        return cn_import_refuse(node, "its labels must be an input of the model, because the mean "
                                      "counts those of the whole batch");
    if (term->fact.ignore != INT64_MIN && (term->is_input || !mean))
        err = leave_out_ignored(node, term);
    else
        err = forbid_negative(node, term);
    return err || !cn_import_has(node, 2) ? err : take_weights(node, &term->weights);
}

// Adds the factor of each label's loss, [batch, 1, ...]; CN_GRAPH_NONE when all factors are 1.
static cn_err weigh_labels(struct cn_import_node *node, const struct term *term, uint32_t *weight)
{
    const int64_t axis = 1, first = 0;
    uint32_t in[2] = {term->weights, term->labels};
    cn_err err = CN_OK;

    *weight = term->counted;
    if (term->weights != CN_GRAPH_NONE) {
        err = cn_import_as_indices(node, term->labels, &in[1]);
        if (!err)
            err = cn_import_apply(node, "Gather", "axis", &first, 1, in, 2, weight);
        if (!err && term->counted != CN_GRAPH_NONE)
            err = cn_import_emit_combine(node, CN_COMBINE_MUL, *weight, term->counted, weight);
    }
    if (err || *weight == CN_GRAPH_NONE)
        return err;
    return cn_import_apply(node, "Unsqueeze", "axes", &axis, 1, weight, 1, weight);
}

// Adds the loss of each label, [batch, 1, ...]; 0 for a label that does not count.
static cn_err emit_losses(struct cn_import_node *node, const struct term *term, uint32_t *out)
{
    const int64_t axis = 1;
    uint32_t in[2], weight;
    cn_err err = cn_import_apply(node, "LogSoftmax", "axis", &axis, 1, node->in, 1, &in[0]);

    if (!err)
        err = cn_import_as_indices(node, term->labels, &in[1]);
    if (!err)
        err = cn_import_apply(node, "Unsqueeze", "axes", &axis, 1, &in[1], 1, &in[1]);
    if (!err)
        err = cn_import_apply(node, "GatherElements", "axis", &axis, 1, in, 2, &in[0]);
    if (!err)
        err = cn_import_apply(node, "Neg", NULL, NULL, 0, in, 1, out);
    if (!err)
        err = weigh_labels(node, term, &weight);
    if (err || weight == CN_GRAPH_NONE)
        return err;
    return cn_import_emit_combine(node, CN_COMBINE_MUL, *out, weight, out);
}

// Adds the labels' total weight in the batch divided by the number of labels. It is 1 where that is
// 0, so that a batch without counting labels has a loss of 0.
static cn_err emit_share(struct cn_import_node *node, struct term *term, uint32_t *out)
{
    const int64_t axis = 1;
    uint32_t zero, empty;
    cn_err err;

    term->fact.kind = CN_FACT_CLASSES;
    err = cn_import_fact(node, &term->fact, out);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_MUL, *out, term->weights, out);
    if (!err)
        err = cn_import_apply(node, "ReduceSum", "axes", &axis, 1, out, 1, out);
    if (!err)
        err = add_integer(node, 0, &zero);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_EQUAL, *out, zero, &empty);
    return err ? err : cn_import_emit_combine(node, CN_COMBINE_ADD, *out, empty, out);
}

// Adds the mean over the batch's labels that count, each weighted by its class.
static cn_err emit_mean(struct cn_import_node *node, struct term *term, uint32_t losses)
{
    uint32_t factor;
    cn_err err = cn_import_reduce_samples(node, CN_OVER_BATCH_MEAN, losses, &node->out);

    if (err)
        return err;
    if (term->weights != CN_GRAPH_NONE) {
        err = emit_share(node, term, &factor);
        if (!err)
            err = cn_import_emit_combine(node, CN_COMBINE_DIV, node->out, factor, &node->out);
    } else if (term->is_input) {
        err = cn_import_fact(node, &term->fact, &factor);
        if (!err)
            err = cn_import_emit_combine(node, CN_COMBINE_MUL, node->out, factor, &node->out);
    }
    if (!err)
        node->graph->values[node->out].over_batch = CN_OVER_BATCH_MEAN;
    return err;
}

static cn_err import_term(struct cn_import_node *node, bool mean, bool sum)
{
    const int64_t axis = 1;
    struct term term;
    uint32_t losses;
    cn_err err = read_term(node, mean, &term);

    if (!err)
        err = emit_losses(node, &term, &losses);
    if (err)
        return err;
    if (mean)
        return emit_mean(node, &term, losses);
    if (sum)
        return cn_import_reduce_samples(node, CN_OVER_BATCH_SUM, losses, &node->out);
    return cn_import_apply(node, "Squeeze", "axes", &axis, 1, &losses, 1, &node->out);
}

cn_err cn_import_entropy(struct cn_import_node *node)
{
    struct cn_text output = node->node->output_count ? node->node->outputs[0] : (struct cn_text){0};
    const struct cn_onnx_attribute *reduction = cn_onnx_attribute_find(node->node, "reduction");
    bool mean = !reduction || cn_text_equal(reduction->s, "mean");
    bool sum = reduction && cn_text_equal(reduction->s, "sum");
    cn_err err = check_entropy(node);

    if (err)
        return err;
    if (!mean && !sum && !cn_text_equal(reduction->s, "none"))
        return cn_import_refuse(node, "its reduction must be mean, sum or none");
    return mean && cn_text_equal(output, node->graph->loss_output) ? import_head(node)
                                                                   : import_term(node, mean, sum);
}
