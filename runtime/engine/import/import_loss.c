// Models that compute their loss themselves. A mean or a sum over the batch is kept as one number
// for each sample; the file's value is their mean or sum. This stays true for sums and multiples of
// such values, so no other ops are allowed on them. A sum is the mean of the samples' numbers times
// the size of the batch, a fact of the batch (struct cn_fact).
#include <string.h>

#include "runtime/engine/import/import_known.h"

static bool is_op(const struct cn_import_node *node, const char *const *names)
{
    for (; *names; names++)
        if (cn_text_equal(node->node->op, *names))
            return true;
    return false;
}

cn_err cn_import_reduce_samples(struct cn_import_node *node, enum cn_over_batch kind, uint32_t in,
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
    if (!err)
        err = cn_import_apply(node, kind == CN_OVER_BATCH_SUM ? "ReduceSum" : "ReduceMean", "axes",
                              &axis, 1, &view, 1, out);
    if (!err)
        node->graph->values[*out].over_batch = kind;
    return err;
}

cn_err cn_import_fact(struct cn_import_node *node, const struct cn_fact *fact, uint32_t *out)
{
    struct cn_graph *graph = node->graph;
    struct cn_value row = {.kind = CN_VALUE_INPUT,
                           .rank = fact->kind == CN_FACT_CLASSES ? 2 : 1,
                           .dims = {graph->batch, fact->classes},
                           .batched = true,
                           .batch_repeats = 1,
                           .shared = true,
                           .root = CN_GRAPH_NONE,
                           .offset = CN_GRAPH_INPUT_MAX + graph->fact_count};
    cn_err err;

    for (uint32_t i = 0; i < graph->fact_count; i++) {
        const struct cn_fact *other = &graph->facts[i];

        if (other->kind == fact->kind && other->labels == fact->labels &&
            other->classes == fact->classes && other->ignore == fact->ignore) {
            *out = other->value;
            return CN_OK;
        }
    }
    if (graph->fact_count == CN_GRAPH_FACT_MAX)
        return cn_import_refuse(node, "the loss needs more than %d numbers of the whole batch",
                                CN_GRAPH_FACT_MAX);
    err = cn_graph_add_value(graph, &row, out);
    if (err)
        return err;
    graph->facts[graph->fact_count] = *fact;
    graph->facts[graph->fact_count++].value = *out;
    return CN_OK;
}

static cn_err refuse_size(const struct cn_import_node *node)
{
    return cn_import_refuse(node, "values computed from the size of the batch are not known before "
                                  "training; samples may only be divided by the size itself, or "
                                  "multiplied by it");
}

cn_err cn_import_refuse_size(const struct cn_import_node *node)
{
    for (size_t i = 0; i < node->in_count; i++) {
        if (cn_import_has(node, i) && cn_import_is_known(cn_import_value(node, i)) &&
            cn_import_known_of_batch(node->graph, cn_import_value(node, i)))
            return refuse_size(node);
    }
    return CN_OK;
}

cn_err cn_import_take_size(struct cn_import_node *node, uint32_t *operand, uint32_t other)
{
    const struct cn_fact size = {.kind = CN_FACT_SIZE};
    struct cn_graph *graph = node->graph;
    const struct cn_value known = graph->values[*operand], like = graph->values[other];
    struct cn_value view;
    double times;
    uint32_t fact;
    cn_err err;

    if (!cn_import_is_known(&known) || cn_import_is_known(&like) ||
        !cn_import_known_of_batch(graph, &known))
        return CN_OK;
    times = known.words == 1 ? cn_import_known_float(graph, &known, 0) / CN_GRAPH_BATCH : 0;
    if (times < 1 || times > 1024 || times != (double)(uint32_t)times || !like.batched ||
        cn_graph_batch_repeats(&like) != 1 || known.rank > like.rank)
        return refuse_size(node);
    err = cn_import_fact(node, &size, &fact);
    if (err)
        return err;
    view = graph->values[fact];
    view.rank = like.rank;
    view.batch_axis = like.batch_axis;
    for (uint32_t d = 0; d < view.rank; d++)
        view.dims[d] = d == like.batch_axis ? graph->batch : 1;
    err = cn_graph_add_value(graph, &view, operand);
    if (err || times == 1)
        return err;
    return cn_import_emit_map(node, (struct cn_map){.kind = CN_MAP_SCALE, .alpha = (float)times},
                              *operand, operand);
}

cn_err cn_import_make_mean(struct cn_import_node *node, uint32_t *value)
{
    const struct cn_fact size = {.kind = CN_FACT_SIZE};
    uint32_t samples;
    cn_err err;

    if (node->graph->values[*value].over_batch != CN_OVER_BATCH_SUM)
        return CN_OK;
    err = cn_import_fact(node, &size, &samples);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_MUL, *value, samples, value);
    if (!err)
        node->graph->values[*value].over_batch = CN_OVER_BATCH_MEAN;
    return err;
}

static enum cn_over_batch over_batch(const struct cn_import_node *node, size_t input)
{
    return cn_import_has(node, input) ? cn_import_value(node, input)->over_batch
                                      : CN_OVER_BATCH_NONE;
}

// Returns whether the node reduces all dimensions of a value that depends on the samples.
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

// Returns whether the result for each sample is correct: all summands are of one kind, and only one
// factor depends on the samples.
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

// Turns sums that are added to means, or to values that depend on no sample, into equal means.
static cn_err agree_on_means(struct cn_import_node *node, enum cn_over_batch *kind)
{
    static const char *const sums[] = {"Add", "Sub", "Sum", NULL};
    bool has_sum = false, has_other = false;
    cn_err err = CN_OK;

    for (size_t i = 0; i < node->in_count; i++) {
        has_sum = has_sum || over_batch(node, i) == CN_OVER_BATCH_SUM;
        has_other = has_other || over_batch(node, i) != CN_OVER_BATCH_SUM;
    }
    if (!has_sum || !has_other || !is_op(node, sums))
        return CN_OK;
    for (size_t i = 0; !err && i < node->in_count; i++)
        err = cn_import_make_mean(node, &node->in[i]);
    *kind = CN_OVER_BATCH_MEAN;
    return err;
}

static cn_err import_further(struct cn_import_node *node, enum cn_over_batch kind,
                             cn_import_fn *import)
{
    static const char *const views[] = {"Identity", "Cast",    "Squeeze", "Unsqueeze",
                                        "Reshape",  "Flatten", NULL};
    static const char *const negation[] = {"Neg", NULL};
    struct cn_map scale;
    cn_err err = agree_on_means(node, &kind);

    if (err)
        return err;
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
        return cn_import_refuse(node,
                                "a mean or a sum over the batch may only be added to others of "
                                "its kind, and multiplied by values that do not depend on "
                                "the samples");
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
    return cn_import_reduce_samples(node, kind, node->in[0], &node->out);
}
