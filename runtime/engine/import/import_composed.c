// Ops that are composed of other ops.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/engine/import/import_known.h"

// A number is NaN if it is not equal to itself.
cn_err cn_import_is_nan(struct cn_import_node *node)
{
    const struct cn_map not = {.kind = CN_MAP_NOT};
    uint32_t x = node->in[0];
    cn_err err = cn_import_emit_combine(node, CN_COMBINE_EQUAL, x, x, &node->out);

    return err ? err : cn_import_emit_map(node, not, node->out, &node->out);
}

// Computes xor of booleans.
cn_err cn_import_xor(struct cn_import_node *node)
{
    const struct cn_map not = {.kind = CN_MAP_NOT};
    cn_err err =
        cn_import_emit_combine(node, CN_COMBINE_EQUAL, node->in[0], node->in[1], &node->out);

    return err ? err : cn_import_emit_map(node, not, node->out, &node->out);
}

cn_err cn_import_tan(struct cn_import_node *node)
{
    const struct cn_map sin = {.kind = CN_MAP_SIN}, cos = {.kind = CN_MAP_COS};
    uint32_t above, below;
    cn_err err = cn_import_emit_map(node, sin, node->in[0], &above);

    if (!err)
        err = cn_import_emit_map(node, cos, node->in[0], &below);
    return err ? err : cn_import_emit_combine(node, CN_COMBINE_DIV, above, below, &node->out);
}

static cn_err add_number(struct cn_import_node *node, float number, uint32_t *out)
{
    const struct cn_value like = {0};

    return cn_import_add_known(node, &like, NULL, &number, out);
}

// Adds the numbers 0 to count - 1 along one dimension, followed by `behind` dimensions of 1.
static cn_err add_numbers(struct cn_import_node *node, uint64_t count, uint32_t behind,
                          uint32_t *out)
{
    struct cn_value like = {.rank = behind + 1, .dims = {count}}, known;
    cn_err err;

    for (uint32_t d = 1; d < like.rank; d++)
        like.dims[d] = 1;
    err = cn_import_known_room(node, &like, true, &known);
    for (size_t i = 0; !err && i < known.words; i++)
        node->graph->numbers[known.offset + i] = (int64_t)i;
    return err ? err : cn_import_known_keep(node, &known, out);
}

// Adds count to indices below 0. Indices that are still below 0 then match no place.
static cn_err count_from_end(struct cn_import_node *node, int64_t count, uint32_t *indices)
{
    const struct cn_value like = {0};
    const int64_t none = 0;
    uint32_t zero, size, below;
    cn_err err = cn_import_add_known(node, &like, &none, NULL, &zero);

    if (!err)
        err = cn_import_add_known(node, &like, &count, NULL, &size);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_LESS, *indices, zero, &below);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_MUL, below, size, &below);
    return err ? err : cn_import_emit_combine(node, CN_COMBINE_ADD, *indices, below, indices);
}

// Inputs: the indices, the number of places, and the pair [number for the other places, number for
// the chosen one].
cn_err cn_import_one_hot(struct cn_import_node *node)
{
    const struct cn_value *depth = cn_import_value(node, 1), *values = cn_import_value(node, 2);
    uint32_t rank = cn_import_value(node, 0)->rank + 1, axis, numbers, indices;
    struct cn_map map = {.kind = CN_MAP_SCALE};
    int64_t place, count;
    cn_err err = cn_import_axis(node, cn_import_int(node, "axis", -1), rank, &axis);

    if (err)
        return err;
    if (!cn_import_is_known(depth) || depth->words != 1 || !cn_import_is_known(values) ||
        values->words != 2)
        return cn_import_refuse(node, "depth and values must be known before training");
    count = cn_import_known_int(node->graph, depth, 0);
    if (count < 1 || rank > CN_GRAPH_RANK_MAX)
        return cn_import_refuse(node, "%" PRId64 " places for indices of rank %u", count, rank - 1);
    map.beta = (float)cn_import_known_float(node->graph, values, 0);
    map.alpha = (float)cn_import_known_float(node->graph, values, 1) - map.beta;
    place = axis;
    err = add_numbers(node, (uint64_t)count, rank - 1 - axis, &numbers);
    if (!err)
        err = cn_import_apply(node, "Unsqueeze", "axes", &place, 1, node->in, 1, &indices);
    if (!err)
        err = count_from_end(node, count, &indices);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_EQUAL, indices, numbers, &node->out);
    return err ? err : cn_import_emit_map(node, map, node->out, &node->out);
}

// Adds the matrix that turns a row into its running sums.
static cn_err add_triangle(struct cn_import_node *node, uint64_t size, bool exclusive, bool reverse,
                           uint32_t *out)
{
    struct cn_value like = {.rank = 2, .dims = {size, size}}, known;
    cn_err err = cn_import_known_room(node, &like, false, &known);

    for (size_t i = 0; !err && i < known.words; i++) {
        size_t from = i / size, to = i % size;
        bool before = reverse ? from > to : from < to;

        node->graph->constants[known.offset + i] =
            before || (from == to && !exclusive) ? 1.0f : 0.0f;
    }
    return err ? err : cn_import_known_keep(node, &known, out);
}

static cn_err sum_known(struct cn_import_node *node, const struct cn_value *x, uint32_t axis)
{
    bool exclusive = cn_import_int(node, "exclusive", 0) != 0;
    bool reverse = cn_import_int(node, "reverse", 0) != 0;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    size_t inner = 1, size;
    struct cn_value sums;
    cn_err err = cn_import_known_room(node, x, x->kind == CN_VALUE_SHAPE, &sums);

    if (err)
        return err;
    cn_graph_sample_dims(node->graph, x, dims); // cn_import_known_room counted the work
    for (uint32_t d = axis + 1; d < x->rank; d++)
        inner *= dims[d];
    size = dims[axis];
    for (size_t row = 0; size && row < x->words / size; row++) {
        double sum = 0;

        for (size_t i = 0; i < size; i++) {
            size_t at =
                row / inner * inner * size + row % inner + (reverse ? size - 1 - i : i) * inner;
            double number = cn_import_known_float(node->graph, x, at);
            double told = exclusive ? sum : sum + number;

            sum += number;
            if (sums.kind == CN_VALUE_SHAPE)
                node->graph->numbers[sums.offset + at] = fabs(told) < 0x1p62 ? (int64_t)told : 0;
            else
                node->graph->constants[sums.offset + at] = (float)told;
        }
    }
    return cn_import_known_keep(node, &sums, &node->out);
}

cn_err cn_import_cumulative_sum(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0), *given = cn_import_value(node, 1);
    int64_t order[CN_GRAPH_RANK_MAX] = {0};
    uint32_t in[2] = {node->in[0]}, axis;
    cn_err err;

    if (!cn_import_is_known(given) || given->words != 1)
        return cn_import_refuse(node, "the axis must be known before training");
    err = cn_import_axis(node, cn_import_known_int(node->graph, given, 0), x.rank, &axis);
    if (err)
        return err;
    if (x.batched && axis == x.batch_axis)
        return cn_import_refuse(node, "sums along the batch are not supported");
    if (cn_import_is_known(&x) && !x.integers)
        return sum_known(node, &x, axis);
    for (uint32_t d = 0; d < x.rank; d++)
        order[d] = d;
    order[axis] = x.rank - 1;
    order[x.rank - 1] = axis;
    err = add_triangle(node, x.dims[axis], cn_import_int(node, "exclusive", 0) != 0,
                       cn_import_int(node, "reverse", 0) != 0, &in[1]);
    if (!err && axis + 1 < x.rank)
        err = cn_import_apply(node, "Transpose", "perm", order, x.rank, in, 1, &in[0]);
    if (!err)
        err = cn_import_apply(node, "MatMul", NULL, NULL, 0, in, 2, &node->out);
    if (!err && axis + 1 < x.rank)
        err = cn_import_apply(node, "Transpose", "perm", order, x.rank, &node->out, 1, &node->out);
    return err;
}

// Adds the largest elements. keep: the dimensions they were searched along stay, with size 1.
static cn_err largest(const struct cn_import_node *node, bool keep, uint32_t *out)
{
    struct cn_onnx_attribute attributes[4];
    struct cn_onnx_node source = *node->node;
    struct cn_import_node part = *node;
    cn_err err;

    source.op = (struct cn_text){"ReduceMax", 9};
    source.attributes = attributes;
    source.attribute_count = 0;
    for (size_t i = 0; i < node->node->attribute_count; i++) {
        const struct cn_onnx_attribute *attribute = &node->node->attributes[i];

        if (source.attribute_count == 4)
            return cn_import_refuse(node, "the node has more attributes than the op");
        // Without the attribute, keepdims is 1.
        if (!keep || !cn_text_equal(attribute->name, "keepdims"))
            attributes[source.attribute_count++] = *attribute;
    }
    part.node = &source;
    err = cn_import_extreme(&part);
    *out = part.out;
    return err;
}

// Replaces infinite elements by 0.
static cn_err make_finite(struct cn_import_node *node, uint32_t *value)
{
    const struct cn_map absolute = {.kind = CN_MAP_ABS};
    uint32_t size, infinity, zero, far;
    cn_err err = cn_import_emit_map(node, absolute, *value, &size);

    if (!err)
        err = add_number(node, INFINITY, &infinity);
    if (!err)
        err = add_number(node, 0, &zero);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_EQUAL, size, infinity, &far);
    return err ? err : cn_import_emit_where(node, far, zero, *value, value);
}

// Adds log(sum) + top. Where the sum is 0 the result is minus infinity with a gradient of 0.
static cn_err emit_log(struct cn_import_node *node, uint32_t sum, uint32_t top, uint32_t *out)
{
    const struct cn_map log = {.kind = CN_MAP_LOG};
    uint32_t zero, one, lowest, empty, result;
    cn_err err = add_number(node, 0, &zero);

    if (!err)
        err = add_number(node, 1, &one);
    if (!err)
        err = add_number(node, -INFINITY, &lowest);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_EQUAL, sum, zero, &empty);
    if (!err)
        err = cn_import_emit_where(node, empty, one, sum, &result);
    if (!err)
        err = cn_import_emit_map(node, log, result, &result);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_ADD, result, top, &result);
    return err ? err : cn_import_emit_where(node, empty, lowest, result, out);
}

// log(sum(exp(x - m))) + m, where m is the largest element, so that no exponential is above 1.
// Where the largest is infinite, m is 0: a row of minus infinity then has an empty sum.
cn_err cn_import_log_sum_exp(struct cn_import_node *node)
{
    const struct cn_map exp = {.kind = CN_MAP_EXP};
    uint32_t kept, top;
    cn_err err = largest(node, true, &kept);

    if (!err)
        err = largest(node, false, &top);
    if (!err)
        err = make_finite(node, &kept);
    if (!err)
        err = make_finite(node, &top);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_SUB, node->in[0], kept, &node->in[0]);
    if (!err)
        err = cn_import_emit_map(node, exp, node->in[0], &node->in[0]);
    if (!err)
        err = cn_import_reduce(node);
    return err ? err : emit_log(node, node->out, top, &node->out);
}
