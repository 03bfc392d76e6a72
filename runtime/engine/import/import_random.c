// Uniform numbers are followed only to the node that makes a choice from them, a comparison or
// Floor. The choice becomes a dropout of ones: it is drawn as every dropout is, and an evaluation
// uses its mean.
#include <inttypes.h>
#include <math.h>

#include "runtime/engine/import/import_emit.h"

// Fills in the dims of the numbers drawn. In a given shape the first dimension that equals the
// batch is the batch.
static cn_err read_dims(struct cn_import_node *node, struct cn_value *like)
{
    int64_t dims[CN_GRAPH_RANK_MAX];
    size_t count;
    cn_err err;

    if (cn_text_equal(node->node->op, "RandomUniformLike")) {
        *like = *cn_import_value(node, 0);
        return CN_OK;
    }
    *like = (struct cn_value){0};
    err = cn_import_numbers(node, CN_IMPORT_INPUTS, "shape", dims, CN_GRAPH_RANK_MAX, &count);
    if (err)
        return err;
    for (size_t d = 0; d < count; d++) {
        if (dims[d] < 1)
            return cn_import_refuse(
                node, "dimension %zu of the shape is %" PRId64 "; wanted at least 1", d, dims[d]);
        like->dims[d] = (uint64_t)dims[d];
        if (!like->batched && like->dims[d] == node->graph->batch) {
            like->batched = true;
            like->batch_axis = (uint32_t)d;
        }
    }
    like->rank = (uint32_t)count;
    return CN_OK;
}

cn_err cn_import_random_uniform(struct cn_import_node *node)
{
    struct cn_value value;
    float low = cn_import_float(node, "low", 0), high = cn_import_float(node, "high", 1);
    cn_err err = read_dims(node, &value);

    if (err)
        return err;
    if (!value.batched)
        return cn_import_refuse(node, "the same random numbers for all samples are not supported");
    if (high - low != 1)
        return cn_import_refuse(node, "random numbers from %g to %g; wanted a range of 1",
                                (double)low, (double)high);
    value.kind = CN_VALUE_UNIFORM;
    value.shared = value.integers = value.frozen = value.padded = value.transposed = false;
    value.root = CN_GRAPH_NONE;
    value.low = low;
    err = cn_graph_add_value(node->graph, &value, &node->out);
    if (!err)
        node->graph->values[node->out].base = node->out;
    return err;
}

// Adds a random choice: 1 with this probability, else 0.
static cn_err choose(struct cn_import_node *node, const struct cn_value *dims, double probability)
{
    struct cn_value like = *dims;
    struct cn_node dropout = cn_graph_node(CN_OP_DROPOUT);
    const float rate = (float)(1 - probability), same = rate <= 0 ? 1 : 0, one = 1;
    uint32_t kept;
    cn_err err;

    if (isnan(probability))
        return cn_import_refuse(node, "the probability is not a number");
    like.kind = CN_VALUE_ACTIVATION;
    like.shared = true;
    if (rate <= 0 || rate >= 1)
        return cn_import_assemble(node, &like, &same, NULL, 0, &node->out);
    err = cn_import_assemble(node, &like, &one, NULL, 0, &node->in[0]);
    if (!err)
        err = cn_import_repeat_samples(node);
    if (!err)
        err = cn_import_add(node, cn_import_value(node, 0), &kept);
    if (err)
        return err;
    dropout.call.dropout = (struct cn_dropout){
        .rate = rate,
        .node = (uint32_t)node->graph->node_count,
        .count = cn_import_value(node, 0)->words,
    };
    dropout.in[0] = node->in[0];
    dropout.out[0] = kept;
    err = cn_graph_add_node(node->graph, &dropout);
    if (!err) // undoes the division by the probability that dropout applies to kept ones
        err = cn_import_emit_map(node,
                                 (struct cn_map){.kind = CN_MAP_SCALE, .alpha = (float)probability},
                                 kept, &node->out);
    if (!err)
        node->graph->values[node->out].choice = true;
    return err;
}

// Refuses a second choice from the same numbers: it would draw other numbers than the first.
static cn_err choose_once(struct cn_import_node *node, const struct cn_value *uniform,
                          double probability)
{
    struct cn_value *drawn = &node->graph->values[uniform->base];

    if (drawn->chosen)
        return cn_import_refuse(node, "two choices of the same random numbers are not supported");
    drawn->chosen = true;
    return choose(node, uniform, probability);
}

cn_err cn_import_bernoulli(struct cn_import_node *node)
{
    const struct cn_value p = *cn_import_value(node, 0);
    double first;
    cn_err err;

    if (!cn_import_is_known(&p) || !p.batched || !p.words)
        return cn_import_refuse(
            node, "the probabilities must be known before training, and drawn for each sample");
    err = cn_import_work(node, p.words);
    if (err)
        return err;
    first = cn_import_known_float(node->graph, &p, 0);
    for (size_t i = 1; i < p.words; i++)
        if (cn_import_known_float(node->graph, &p, i) != first)
            return cn_import_refuse(node,
                                    "probabilities that differ within a node are not supported");
    return choose(node, &p, first);
}

// Adds a value of the same random numbers, shifted.
static cn_err move(struct cn_import_node *node, const struct cn_value *uniform, double by)
{
    struct cn_value moved = *uniform;

    moved.low += (float)by;
    moved.root = CN_GRAPH_NONE;
    return cn_graph_add_value(node->graph, &moved, &node->out);
}

cn_err cn_import_of_random(struct cn_import_node *node)
{
    bool second = cn_import_value(node, 0)->kind != CN_VALUE_UNIFORM;
    const struct cn_text op = node->node->op;
    const struct cn_value *other;
    struct cn_value uniform;
    double number;
    bool less = cn_text_equal(op, "Less") || cn_text_equal(op, "LessOrEqual");
    bool more = cn_text_equal(op, "Greater") || cn_text_equal(op, "GreaterOrEqual");

    if (!cn_import_has(node, second) || cn_import_value(node, second)->kind != CN_VALUE_UNIFORM)
        return cn_import_refuse(node,
                                "random numbers are supported as the first or second input only");
    uniform = *cn_import_value(node, second);
    if (cn_text_equal(op, "Identity") ||
        (cn_text_equal(op, "Cast") && cn_import_int(node, "to", 0) == CN_ONNX_FLOAT)) {
        node->out = node->in[0];
        return CN_OK;
    }
    if (cn_text_equal(op, "Floor") && uniform.low >= 0 && uniform.low <= 1)
        return choose_once(node, &uniform, (double)uniform.low);
    if (node->in_count == 2 &&
        (less || more || cn_text_equal(op, "Add") || (cn_text_equal(op, "Sub") && !second))) {
        other = cn_import_value(node, !second);
        if (!cn_import_is_known(other) || other->words != 1 || other->rank > uniform.rank)
            return cn_import_refuse(node,
                                    "random numbers may be combined with one known number only");
        number = cn_import_known_float(node->graph, other, 0);
        if (!less && !more)
            return move(node, &uniform, cn_text_equal(op, "Add") ? number : -number);
        number -= (double)uniform.low;
        return choose_once(node, &uniform, less != second ? number : 1 - number);
    }
    return cn_import_refuse(node,
                            "random numbers may only be compared (Less, Greater and the like) "
                            "or rounded by Floor");
}

// Adds choice ? a : b as a sum, so that the mean of the choice gives the mean of both.
static cn_err choose_between(struct cn_import_node *node)
{
    const struct cn_map not = {.kind = CN_MAP_SCALE, .alpha = -1, .beta = 1};
    uint32_t parts[2], other;
    cn_err err = CN_OK;

    for (size_t i = 1; i < 3; i++) {
        const struct cn_value *value = cn_import_value(node, i);

        if (value->integers)
            return cn_import_refuse(node, "a random choice between integers is not supported");
        if (cn_import_is_known(value))
            err = cn_import_work(node, value->words);
        for (size_t j = 0; !err && cn_import_is_known(value) && j < value->words; j++)
            if (!isfinite(cn_import_known_float(node->graph, value, j)))
                return cn_import_refuse(
                    node, "a random choice of numbers that are not finite is not supported");
    }
    if (!err)
        err = cn_import_emit_map(node, not, node->in[0], &other);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_MUL, node->in[0], node->in[1], &parts[0]);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_MUL, other, node->in[2], &parts[1]);
    return err ? err : cn_import_emit_combine(node, CN_COMBINE_ADD, parts[0], parts[1], &node->out);
}

static bool is_one_of(struct cn_text op, const char *const *names)
{
    while (*names && !cn_text_equal(op, *names))
        names++;
    return *names;
}

cn_err cn_import_of_choice(struct cn_import_node *node, cn_import_fn *import)
{
    static const char *const moves[] = {"Identity", "Unsqueeze", "Squeeze", "Reshape",
                                        "Expand",   "Transpose", "Flatten", NULL};
    static const char *const numbers[] = {"Mul", "Div", "Add", "Sub", "Neg", "Shape", NULL};
    const struct cn_map not = {.kind = CN_MAP_SCALE, .alpha = -1, .beta = 1};
    const struct cn_text op = node->node->op;
    int64_t to = cn_import_int(node, "to", 0);
    cn_err err;

    if (is_one_of(op, numbers))
        return cn_import_whole_batch(node, import);
    if (cn_text_equal(op, "Where") && cn_import_value(node, 0)->choice)
        return choose_between(node);
    if (cn_text_equal(op, "Cast") && (to == CN_ONNX_BOOL || to == CN_ONNX_FLOAT)) {
        node->out = node->in[0];
        return CN_OK;
    }
    if (cn_text_equal(op, "Not"))
        err = cn_import_emit_map(node, not, node->in[0], &node->out);
    else if (is_one_of(op, moves))
        err = import(node);
    else
        return cn_import_refuse(node, "a random choice may only be a factor, or the condition "
                                      "of Where");
    if (!err)
        node->graph->values[node->out].choice = true;
    return err;
}
