// Values that are known when the model is read: constants, shapes, and values made from them.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"
#include "runtime/engine/import/import_known.h"

static cn_err constant_tensor(struct cn_import_node *node, const struct cn_onnx_tensor *tensor,
                              uint32_t *out)
{
    struct cn_value like = {.rank = tensor->rank}, value;
    bool floats = tensor->type == CN_ONNX_FLOAT;
    cn_err err;

    memcpy(like.dims, tensor->dims, sizeof(like.dims));
    err = cn_import_known_room(node, &like, !floats, &value);
    if (err)
        return err;
    err = floats ? cn_onnx_tensor_floats(tensor, node->graph->constants + value.offset)
                 : cn_onnx_tensor_ints(tensor, node->graph->numbers + value.offset);
    if (err)
        return cn_import_refuse(node, "element type %d is not supported", (int)tensor->type);
    return cn_import_known_keep(node, &value, out);
}

cn_err cn_import_constant(struct cn_import_node *node)
{
    const struct cn_onnx_attribute *attribute;
    struct cn_value like = {0};

    if (node->node->attribute_count != 1)
        return cn_import_refuse(node, "%zu attributes, wanted 1", node->node->attribute_count);
    attribute = &node->node->attributes[0];
    if (cn_text_equal(attribute->name, "value"))
        return constant_tensor(node, &attribute->tensor, &node->out);
    if (cn_text_equal(attribute->name, "value_int"))
        return cn_import_add_known(node, &like, &attribute->i, NULL, &node->out);
    if (cn_text_equal(attribute->name, "value_ints"))
        return cn_import_shape(node, attribute->ints, attribute->count, 1);
    if (cn_text_equal(attribute->name, "value_float"))
        return cn_import_add_known(node, &like, NULL, &attribute->f, &node->out);
    if (cn_text_equal(attribute->name, "value_floats") &&
        (attribute->floats || !attribute->count)) {
        like.rank = 1;
        like.dims[0] = attribute->count;
        return cn_import_add_known(node, &like, NULL, attribute->floats, &node->out);
    }
    return cn_import_refuse(node, "attribute '%.*s' is not supported", (int)attribute->name.size,
                            attribute->name.data);
}

cn_err cn_import_shape_of(struct cn_import_node *node)
{
    const struct cn_value *value = cn_import_value(node, 0);
    int64_t rank = value->rank;
    int64_t start = cn_import_int(node, "start", 0), end = cn_import_int(node, "end", rank);
    int64_t numbers[CN_GRAPH_RANK_MAX];
    size_t count = 0;

    start = start < 0 ? start + rank : start;
    end = end < 0 ? end + rank : end;
    for (int64_t d = start < 0 ? 0 : start; d < end && d < rank; d++)
        numbers[count++] = (int64_t)value->dims[d];
    return cn_import_shape(node, numbers, count, 1);
}

cn_err cn_import_size_of(struct cn_import_node *node)
{
    const struct cn_value *value = cn_import_value(node, 0);
    int64_t size = 1;

    for (uint32_t d = 0; d < value->rank; d++)
        if (__builtin_mul_overflow(size, (int64_t)value->dims[d], &size))
            return cn_import_refuse(node, "the input is too large");
    return cn_import_shape(node, &size, 1, 0);
}

// If a dimension is a multiple of an open batch, the result has one part for each sample.
cn_err cn_import_constant_of_shape(struct cn_import_node *node)
{
    const struct cn_onnx_attribute *filler = cn_onnx_attribute_find(node->node, "value");
    const struct cn_value *shape = cn_import_value(node, 0);
    const uint64_t batch = node->graph->batch;
    struct cn_value result = {.shared = true}, known;
    int64_t number = 0;
    float real = 0;
    bool floats = !filler || filler->tensor.type == CN_ONNX_FLOAT;
    cn_err err = CN_OK;

    if (shape->kind != CN_VALUE_SHAPE || shape->words > CN_GRAPH_RANK_MAX)
        return cn_import_refuse(node, "the shape is not known before training");
    if (filler && filler->tensor.count != 1)
        return cn_import_refuse(node, "the value must have one element");
    if (filler)
        err = floats ? cn_onnx_tensor_floats(&filler->tensor, &real)
                     : cn_onnx_tensor_ints(&filler->tensor, &number);
    if (err)
        return cn_import_refuse(node, "the value's element type is not supported");
    result.rank = (uint32_t)shape->words;
    for (uint32_t d = 0; d < result.rank; d++) {
        int64_t size = cn_import_known_int(node->graph, shape, d);

        if (size < 0)
            return cn_import_refuse(
                node, "element %u of the shape is %" PRId64 "; wanted at least 0", d, size);
        result.dims[d] = (uint64_t)size;
        if (!result.batched && batch == CN_GRAPH_BATCH && size && result.dims[d] % batch == 0) {
            result.batched = true;
            result.batch_axis = d;
        }
    }
    err = cn_import_known_room(node, &result, !floats, &known);
    for (size_t i = 0; !err && i < known.words; i++)
        if (floats)
            node->graph->constants[known.offset + i] = real;
        else
            node->graph->numbers[known.offset + i] = number;
    return err ? err : cn_import_known_keep(node, &known, &node->out);
}

cn_err cn_import_range(struct cn_import_node *node)
{
    double number[3];
    bool floats = false;
    struct cn_value like = {.rank = 1}, known;
    double count;
    cn_err err;

    for (size_t i = 0; i < 3; i++) {
        const struct cn_value *value = cn_import_value(node, i);

        if (!cn_import_is_known(value) || value->words != 1)
            return cn_import_refuse(node, "start, limit and step must be known before training");
        number[i] = cn_import_known_float(node->graph, value, 0);
        floats = floats || value->kind == CN_VALUE_CONST;
    }
    count = ceil((number[1] - number[0]) / number[2]);
    if (!(fabs(count) < 0x1p31) || !(fabs(number[0]) < 0x1p52) || !(fabs(number[2]) < 0x1p20))
        return cn_import_refuse(node, "a range from %g to %g in steps of %g is not supported",
                                number[0], number[1], number[2]);
    like.dims[0] = count > 0 ? (uint64_t)count : 0;
    if (!floats && like.dims[0] == CN_GRAPH_BATCH && node->graph->batch == CN_GRAPH_BATCH &&
        number[0] == 0 && number[2] == 1)
        return cn_import_number_samples(node);
    err = cn_import_known_room(node, &like, !floats, &known);
    for (size_t i = 0; !err && i < known.words; i++)
        if (floats)
            node->graph->constants[known.offset + i] = (float)(number[0] + (double)i * number[2]);
        else
            node->graph->numbers[known.offset + i] =
                (int64_t)number[0] + (int64_t)i * (int64_t)number[2];
    return err ? err : cn_import_known_keep(node, &known, &node->out);
}

// Computes the modulus of integers. As in arithmetic on shapes, the result has the divisor's sign.
cn_err cn_import_mod(struct cn_import_node *node)
{
    const struct cn_value a = *cn_import_value(node, 0), b = *cn_import_value(node, 1);
    struct cn_value result;
    cn_err err;

    if (a.kind != CN_VALUE_SHAPE || b.kind != CN_VALUE_SHAPE ||
        (a.words != b.words && b.words != 1) || cn_import_int(node, "fmod", 0))
        return cn_import_refuse(node, "only integers known before training are supported");
    err = cn_import_known_room(node, &a, true, &result);
    for (size_t i = 0; !err && i < result.words; i++) {
        int64_t x = cn_import_known_int(node->graph, &a, i);
        int64_t y = cn_import_known_int(node->graph, &b, b.words == 1 ? 0 : i);

        if (!y || y == -1)
            return cn_import_refuse(node, "a divisor of %" PRId64 " is not supported", y);
        x %= y;
        node->graph->numbers[result.offset + i] = x && (x < 0) != (y < 0) ? x + y : x;
    }
    return err ? err : cn_import_known_keep(node, &result, &node->out);
}

// Keeps the elements on one side of a diagonal of the last two dimensions.
cn_err cn_import_trilu(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0);
    struct cn_value like = {.rank = 2}, none = {0}, mask;
    bool upper = cn_import_int(node, "upper", 1) != 0;
    const int64_t integer = 0;
    const float real = 0;
    int64_t k = 0;
    uint32_t condition, zero;
    size_t count;
    cn_err err;

    if (x.rank < 2 || (x.batched && x.batch_axis + 2 >= x.rank))
        return cn_import_refuse(node, "the input must end in matrices");
    if (cn_import_has(node, 1)) {
        err = cn_import_numbers(node, 1, "k", &k, 1, &count);
        if (err)
            return err;
    }
    memcpy(like.dims, x.dims + x.rank - 2, 2 * sizeof(*like.dims));
    err = cn_import_known_room(node, &like, true, &mask);
    for (size_t i = 0; !err && i < mask.words; i++) {
        int64_t row = (int64_t)(i / mask.dims[1]), col = (int64_t)(i % mask.dims[1]);

        node->graph->numbers[mask.offset + i] = upper ? col - row >= k : col - row <= k;
    }
    if (!err)
        err = cn_import_known_keep(node, &mask, &condition);
    if (!err)
        err = x.kind == CN_VALUE_SHAPE ? cn_import_add_known(node, &none, &integer, NULL, &zero)
                                       : cn_import_add_known(node, &none, NULL, &real, &zero);
    return err ? err : cn_import_emit_where(node, condition, node->in[0], zero, &node->out);
}
