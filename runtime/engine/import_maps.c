// Elementwise ops, and ops that only change a shape.
#include <string.h>

#include "runtime/engine/import.h"

static const struct {
    const char *name;
    enum cn_map_kind kind;
} maps[] = {
    {"Relu", CN_MAP_RELU},
    {"LeakyRelu", CN_MAP_LEAKY_RELU},
    {"Sigmoid", CN_MAP_SIGMOID},
    {"Tanh", CN_MAP_TANH},
};

cn_err cn_import_map(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    struct cn_node map = cn_graph_node(CN_OP_MAP);
    cn_err err;

    if (!x->batched)
        return cn_import_refuse(node, "the input must be computed from the samples");
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
        if (cn_text_equal(node->node->op, maps[i].name))
            map.call.map.kind = maps[i].kind;
    map.call.map.alpha = cn_import_float(node, "alpha", 0.01f);
    map.call.map.count = x->words;
    if (map.call.map.kind == CN_MAP_LEAKY_RELU && !(map.call.map.alpha > 0))
        return cn_import_refuse(node, "alpha is %g, wanted above 0", (double)map.call.map.alpha);
    err = cn_import_output(node, x->rank, x->dims);
    if (err)
        return err;
    map.in[0] = node->in[0];
    map.out[0] = node->out;
    return cn_graph_add_node(node->graph, &map);
}

// Dims of the result by NumPy's rules, the batch kept apart.
static cn_err broadcast_dims(const struct cn_import_node *node, uint64_t *dims, uint32_t *rank)
{
    const struct cn_value *in[2] = {cn_import_value(node, 0), cn_import_value(node, 1)};

    *rank = in[0]->rank > in[1]->rank ? in[0]->rank : in[1]->rank;
    for (int i = 0; i < 2; i++) {
        // A value without the batch must not have a dimension of its own where the batch is.
        if (in[i]->batched ? in[i]->rank != *rank : in[i]->rank == *rank && in[i]->dims[0] != 1)
            return cn_import_refuse(node, "the operands do not agree on the batch dimension");
        if (in[i]->transposed)
            return cn_import_refuse(node, "a transposed weight is only supported in a product");
    }
    dims[0] = node->graph->batch;
    for (uint32_t d = 1; d < *rank; d++) {
        uint64_t size[2] = {1, 1};

        for (int i = 0; i < 2; i++)
            size[i] = d + in[i]->rank < *rank ? 1 : in[i]->dims[d + in[i]->rank - *rank];
        if (size[0] != size[1] && size[0] != 1 && size[1] != 1)
            return cn_import_refuse(node, "sizes %llu and %llu in dimension %u",
                                    (unsigned long long)size[0], (unsigned long long)size[1], d);
        dims[d] = size[0] > size[1] ? size[0] : size[1];
    }
    return CN_OK;
}

// Strides of an operand along dims 1 to rank of the result; 0 where it repeats.
static void broadcast_strides(const struct cn_value *value, uint32_t rank, size_t *strides)
{
    size_t stride = 1;

    for (uint32_t d = rank; d-- > 1;) {
        uint64_t size = d + value->rank < rank ? 1 : value->dims[d + value->rank - rank];

        strides[d] = size == 1 ? 0 : stride;
        stride *= size;
    }
}

// Merges neighbouring dims along which both operands run on, and drops dims of 1.
static void fold_dims(struct cn_combine *op, uint32_t rank, const uint64_t *dims, const size_t *a,
                      const size_t *b)
{
    op->rank = 0;
    for (uint32_t d = 1; d < rank; d++) {
        uint32_t last = op->rank - 1;

        if (dims[d] == 1)
            continue;
        if (op->rank && op->a[last] == a[d] * dims[d] && op->b[last] == b[d] * dims[d]) {
            op->dims[last] *= dims[d];
            op->a[last] = a[d];
            op->b[last] = b[d];
            continue;
        }
        op->dims[op->rank] = dims[d];
        op->a[op->rank] = a[d];
        op->b[op->rank] = b[d];
        op->rank++;
    }
    if (!op->rank) {
        op->rank = 1;
        op->dims[0] = op->a[0] = op->b[0] = 1;
    }
}

cn_err cn_import_arithmetic(struct cn_import_node *node)
{
    const struct cn_value *in[2] = {cn_import_value(node, 0), cn_import_value(node, 1)};
    struct cn_node combine = cn_graph_node(CN_OP_COMBINE);
    size_t strides[2][CN_GRAPH_RANK_MAX] = {{0}};
    uint64_t dims[CN_GRAPH_RANK_MAX] = {0};
    uint32_t rank;
    cn_err err;

    if (in[0]->kind == CN_VALUE_SHAPE && in[1]->kind == CN_VALUE_SHAPE)
        return cn_import_integer_arithmetic(node);
    if (in[0]->kind == CN_VALUE_SHAPE || in[1]->kind == CN_VALUE_SHAPE)
        return cn_import_refuse(node, "integers and floats are mixed");
    if (!in[0]->batched && !in[1]->batched)
        return cn_import_refuse(node, "neither operand is computed from the samples");
    if (cn_text_equal(node->node->op, "Div"))
        return cn_import_refuse(node, "division is supported for shapes only");
    err = broadcast_dims(node, dims, &rank);
    if (err)
        return err;
    for (int i = 0; i < 2; i++)
        broadcast_strides(in[i], rank, strides[i]);
    fold_dims(&combine.call.combine, rank, dims, strides[0], strides[1]);
    combine.call.combine.kind = cn_text_equal(node->node->op, "Add")   ? CN_COMBINE_ADD
                                : cn_text_equal(node->node->op, "Sub") ? CN_COMBINE_SUB
                                                                       : CN_COMBINE_MUL;
    combine.call.combine.scale = 1;
    err = cn_import_output(node, rank, dims);
    if (err)
        return err;
    combine.in[0] = node->in[0];
    combine.in[1] = node->in[1];
    combine.out[0] = node->out;
    return cn_graph_add_node(node->graph, &combine);
}

cn_err cn_import_flatten(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    int64_t axis = cn_import_int(node, "axis", 1);
    uint64_t dims[2];

    axis = axis < 0 ? axis + x->rank : axis;
    if (!x->batched || axis != 1)
        return cn_import_refuse(node, "axis %lld; only 1, behind the batch, is supported",
                                (long long)axis);
    dims[0] = x->dims[0];
    dims[1] = x->words;
    return cn_import_view(node, 2, dims);
}

// Replaces 0 (copy) and -1 (the rest) in the wanted shape.
static cn_err resolve_shape(const struct cn_import_node *node, const int64_t *wanted, size_t rank,
                            uint64_t *dims)
{
    const struct cn_value *x = cn_import_value(node, 0);
    uint64_t total = x->words, known = 1;
    size_t rest = rank;

    if (x->batched && __builtin_mul_overflow(total, x->dims[0], &total))
        return cn_import_refuse(node, "the input is too large");
    for (size_t d = 0; d < rank; d++) {
        dims[d] = wanted[d] > 0 ? (uint64_t)wanted[d] : 1;
        if (wanted[d] < -1 || (wanted[d] == -1 && rest != rank) ||
            (wanted[d] == 0 && (d >= x->rank || cn_import_int(node, "allowzero", 0))))
            return cn_import_refuse(node, "element %zu of the new shape is %lld", d,
                                    (long long)wanted[d]);
        if (wanted[d] == -1)
            rest = d;
        if (wanted[d] == 0)
            dims[d] = x->dims[d];
        if (__builtin_mul_overflow(known, dims[d], &known))
            return cn_import_refuse(node, "the new shape is too large");
    }
    if (rest < rank && total % known == 0)
        dims[rest] = total / known;
    if (rest < rank ? total % known != 0 : total != known)
        return cn_import_refuse(node, "the new shape does not have the input's number of elements");
    return CN_OK;
}

cn_err cn_import_reshape(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    int64_t wanted[CN_GRAPH_RANK_MAX];
    uint64_t dims[CN_GRAPH_RANK_MAX] = {0};
    size_t rank;
    cn_err err = cn_import_numbers(node, 1, "shape", wanted, CN_GRAPH_RANK_MAX, &rank);

    if (err)
        return err;
    if (x->kind == CN_VALUE_SHAPE || x->transposed)
        return cn_import_refuse(node, "only samples and weights can be reshaped");
    err = resolve_shape(node, wanted, rank, dims);
    if (err)
        return err;
    if (x->batched && (!rank || dims[0] != x->dims[0]))
        return cn_import_refuse(node, "the batch must stay dimension 0");
    return cn_import_view(node, (uint32_t)rank, dims);
}

cn_err cn_import_identity(struct cn_import_node *node)
{
    node->out = node->in[0];
    return CN_OK;
}
