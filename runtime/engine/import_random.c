// Random numbers of a model's own, as stochastic depth draws them: 1 with some probability, else 0.
//
// Uniform ones are only followed to what makes a choice of them, a comparison or Floor, and that is
// a dropout of ones: drawn as every dropout is, and its mean when a model is measured.
#include "runtime/engine/import_emit.h"

// Dims of what is drawn; the batch is found in an open one.
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
            return cn_import_refuse(node, "dimension %zu of the shape is %lld", d,
                                    (long long)dims[d]);
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
        return cn_import_refuse(node, "numbers from %g to %g, wanted a range of 1", (double)low,
                                (double)high);
    value.kind = CN_VALUE_UNIFORM;
    value.shared = value.integers = value.frozen = value.padded = value.transposed = false;
    value.root = CN_GRAPH_NONE;
    value.low = low;
    return cn_graph_add_value(node->graph, &value, &node->out);
}

// 1 with that probability, else 0.
static cn_err choose(struct cn_import_node *node, const struct cn_value *dims, double probability)
{
    struct cn_value like = *dims;
    struct cn_node dropout = cn_graph_node(CN_OP_DROPOUT);
    float same = probability >= 1 ? 1 : 0;
    const float one = 1;
    uint32_t kept;
    cn_err err;

    like.kind = CN_VALUE_ACTIVATION;
    like.shared = true;
    if (probability >= 1 || probability <= 0)
        return cn_import_assemble(node, &like, &same, NULL, 0, &node->out);
    err = cn_import_assemble(node, &like, &one, NULL, 0, &node->in[0]);
    if (!err)
        err = cn_import_repeat_samples(node);
    if (!err)
        err = cn_import_add(node, cn_import_value(node, 0), &kept);
    if (err)
        return err;
    dropout.call.dropout = (struct cn_dropout){
        .rate = (float)(1 - probability),
        .node = (uint32_t)node->graph->node_count,
        .count = cn_import_value(node, 0)->words,
    };
    dropout.in[0] = node->in[0];
    dropout.out[0] = kept;
    err = cn_graph_add_node(node->graph, &dropout);
    // What is kept was divided by the probability.
    return err ? err
               : cn_import_emit_map(
                     node, (struct cn_map){.kind = CN_MAP_SCALE, .alpha = (float)probability}, kept,
                     &node->out);
}

cn_err cn_import_bernoulli(struct cn_import_node *node)
{
    const struct cn_value p = *cn_import_value(node, 0);
    double first;
    cn_err err;

    if (!cn_import_is_known(&p) || !p.batched || !p.words)
        return cn_import_refuse(node, "probabilities must be known and drawn for each sample");
    err = cn_import_work(node, p.words);
    if (err)
        return err;
    first = cn_import_known_float(node->graph, &p, 0);
    for (size_t i = 1; i < p.words; i++)
        if (cn_import_known_float(node->graph, &p, i) != first)
            return cn_import_refuse(node, "different probabilities are not supported");
    return choose(node, &p, first);
}

// Another value of the same random numbers, moved.
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
    const struct cn_value uniform = *cn_import_value(node, second);
    const struct cn_text op = node->node->op;
    const struct cn_value *other;
    double number;
    bool less = cn_text_equal(op, "Less") || cn_text_equal(op, "LessOrEqual");
    bool more = cn_text_equal(op, "Greater") || cn_text_equal(op, "GreaterOrEqual");

    if (cn_text_equal(op, "Identity") ||
        (cn_text_equal(op, "Cast") && cn_import_int(node, "to", 0) == CN_ONNX_FLOAT)) {
        node->out = node->in[0];
        return CN_OK;
    }
    if (cn_text_equal(op, "Floor") && uniform.low >= 0 && uniform.low <= 1)
        return choose(node, &uniform, (double)uniform.low);
    if (node->in_count == 2 &&
        (less || more || cn_text_equal(op, "Add") || (cn_text_equal(op, "Sub") && !second))) {
        other = cn_import_value(node, !second);
        if (!cn_import_is_known(other) || other->words != 1 || other->rank > uniform.rank)
            return cn_import_refuse(node, "random numbers beside other than one known number");
        number = cn_import_known_float(node->graph, other, 0);
        if (!less && !more)
            return move(node, &uniform, cn_text_equal(op, "Add") ? number : -number);
        number -= (double)uniform.low;
        return choose(node, &uniform, less != second ? number : 1 - number);
    }
    return cn_import_refuse(node, "it reads random numbers, which only become choices here: by "
                                  "Less, Greater and the like, or Floor");
}
