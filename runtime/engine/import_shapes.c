// Integer arithmetic on shapes, done while the model is read. Only scalars and vectors occur.
#include <string.h>

#include "runtime/engine/import.h"

#define NUMBERS_MAX 64

static const int64_t *numbers_of(const struct cn_import_node *node, size_t input)
{
    return node->graph->numbers + cn_import_value(node, input)->offset;
}

static bool is_shape(const struct cn_import_node *node, size_t input)
{
    return cn_import_value(node, input)->kind == CN_VALUE_SHAPE;
}

static cn_err constant_floats(struct cn_import_node *node, const struct cn_onnx_tensor *tensor,
                              const float *floats, size_t count)
{
    struct cn_value value = {.kind = CN_VALUE_CONST, .root = CN_GRAPH_NONE};
    cn_err err = cn_graph_add_constants(node->graph, floats, count, &value.offset);

    if (err)
        return err;
    if (tensor) {
        value.rank = tensor->rank;
        memcpy(value.dims, tensor->dims, sizeof(value.dims));
    } else {
        value.rank = count == 1 ? 0 : 1;
        value.dims[0] = count;
    }
    if (tensor) {
        // The elements go straight into the pool that was made for them.
        err = cn_onnx_tensor_floats(tensor, node->graph->constants + value.offset);
        if (err)
            return err;
    }
    return cn_graph_add_value(node->graph, &value, &node->out);
}

static cn_err constant_tensor(struct cn_import_node *node, const struct cn_onnx_tensor *tensor)
{
    int64_t numbers[NUMBERS_MAX];
    cn_err err;

    if (!tensor->count)
        return cn_import_refuse(node, "the constant is empty");
    if (tensor->type == CN_ONNX_FLOAT) {
        static const float zero[NUMBERS_MAX];

        if (tensor->count > NUMBERS_MAX)
            return cn_import_refuse(node, "a constant of %zu elements; at most %d are supported",
                                    tensor->count, NUMBERS_MAX);
        return constant_floats(node, tensor, zero, tensor->count);
    }
    if (tensor->rank > 1 || tensor->count > NUMBERS_MAX)
        return cn_import_refuse(node, "an integer constant of rank %u with %zu elements",
                                tensor->rank, tensor->count);
    err = cn_onnx_tensor_ints(tensor, numbers);
    if (err)
        return cn_import_refuse(node, "element type %d is not supported", (int)tensor->type);
    return cn_import_shape(node, numbers, tensor->count, tensor->rank);
}

cn_err cn_import_constant(struct cn_import_node *node)
{
    const struct cn_onnx_attribute *attribute;

    if (node->node->attribute_count != 1)
        return cn_import_refuse(node, "%zu attributes, wanted 1", node->node->attribute_count);
    attribute = &node->node->attributes[0];
    if (cn_text_equal(attribute->name, "value"))
        return constant_tensor(node, &attribute->tensor);
    if (cn_text_equal(attribute->name, "value_int"))
        return cn_import_shape(node, &attribute->i, 1, 0);
    if (cn_text_equal(attribute->name, "value_ints"))
        return cn_import_shape(node, attribute->ints, attribute->count, 1);
    if (cn_text_equal(attribute->name, "value_float"))
        return constant_floats(node, NULL, &attribute->f, 1);
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

    if (value->kind == CN_VALUE_SHAPE)
        return cn_import_refuse(node, "the shape of a shape is not supported");
    start = start < 0 ? start + rank : start;
    end = end < 0 ? end + rank : end;
    for (int64_t d = start < 0 ? 0 : start; d < end && d < rank; d++)
        numbers[count++] = (int64_t)value->dims[d];
    return cn_import_shape(node, numbers, count, 1);
}

cn_err cn_import_gather(struct cn_import_node *node)
{
    int64_t numbers[NUMBERS_MAX];
    size_t count, from_count;

    if (!is_shape(node, 0) || !is_shape(node, 1) || cn_import_int(node, "axis", 0) != 0)
        return cn_import_refuse(node, "only elements of a shape can be gathered");
    count = cn_import_value(node, 1)->words;
    from_count = cn_import_value(node, 0)->words;
    if (count > NUMBERS_MAX)
        return cn_import_refuse(node, "%zu indices", count);
    for (size_t i = 0; i < count; i++) {
        int64_t at = numbers_of(node, 1)[i];

        at = at < 0 ? at + (int64_t)from_count : at;
        if (at < 0 || (uint64_t)at >= from_count)
            return cn_import_refuse(node, "index %lld of %zu elements",
                                    (long long)numbers_of(node, 1)[i], from_count);
        numbers[i] = numbers_of(node, 0)[at];
    }
    return cn_import_shape(node, numbers, count, cn_import_value(node, 1)->rank);
}

cn_err cn_import_concat(struct cn_import_node *node)
{
    int64_t numbers[NUMBERS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < node->in_count; i++) {
        size_t more = is_shape(node, i) ? cn_import_value(node, i)->words : 0;

        if (!is_shape(node, i))
            return cn_import_refuse(node, "only shapes can be concatenated");
        if (more > NUMBERS_MAX - count)
            return cn_import_refuse(node, "more than %d elements", NUMBERS_MAX);
        memcpy(numbers + count, numbers_of(node, i), more * sizeof(*numbers));
        count += more;
    }
    return cn_import_shape(node, numbers, count, 1);
}

// Shapes and parameters change rank; the elements stay.
static cn_err change_shape_rank(struct cn_import_node *node, uint32_t rank)
{
    int64_t numbers[NUMBERS_MAX];
    size_t count = cn_import_value(node, 0)->words;

    if (count > NUMBERS_MAX || (rank == 0 && count != 1))
        return cn_import_refuse(node, "%zu elements", count);
    memcpy(numbers, numbers_of(node, 0), count * sizeof(*numbers));
    return cn_import_shape(node, numbers, count, rank);
}

static cn_err read_axes(const struct cn_import_node *node, uint32_t rank, bool *marked,
                        size_t *count)
{
    int64_t axes[CN_GRAPH_RANK_MAX];
    cn_err err = cn_import_numbers(node, 1, "axes", axes, CN_GRAPH_RANK_MAX, count);

    if (err)
        return err;
    for (size_t i = 0; i < *count; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];

        if (axis < 0 || axis >= rank || marked[axis])
            return cn_import_refuse(node, "axis %lld of rank %u", (long long)axes[i], rank);
        marked[axis] = true;
    }
    return CN_OK;
}

cn_err cn_import_unsqueeze(struct cn_import_node *node)
{
    const struct cn_value *value = cn_import_value(node, 0);
    bool marked[2 * CN_GRAPH_RANK_MAX] = {false};
    uint64_t dims[2 * CN_GRAPH_RANK_MAX];
    int64_t axes[CN_GRAPH_RANK_MAX];
    size_t count, from = 0;
    uint32_t rank;
    cn_err err;

    if (value->kind == CN_VALUE_SHAPE)
        return change_shape_rank(node, 1);
    err = cn_import_numbers(node, 1, "axes", axes, CN_GRAPH_RANK_MAX, &count);
    if (err)
        return err;
    rank = value->rank + (uint32_t)count;
    err = read_axes(node, rank, marked, &count);
    if (err)
        return err;
    if ((value->batched && marked[0]) || value->transposed)
        return cn_import_refuse(node, "the batch must stay dimension 0");
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = marked[d] ? 1 : value->dims[from++];
    return cn_import_view(node, rank, dims);
}

cn_err cn_import_squeeze(struct cn_import_node *node)
{
    const struct cn_value *value = cn_import_value(node, 0);
    bool marked[CN_GRAPH_RANK_MAX] = {false};
    uint64_t dims[CN_GRAPH_RANK_MAX];
    uint32_t rank = 0;
    size_t count;
    cn_err err;

    if (value->kind == CN_VALUE_SHAPE)
        return change_shape_rank(node, 0);
    err = read_axes(node, value->rank, marked, &count);
    if (err)
        return err;
    for (uint32_t d = 0; d < value->rank; d++) {
        bool batch = value->batched && d == 0;
        bool drop = count ? marked[d] : value->dims[d] == 1 && !batch;

        if (drop && (batch || value->transposed))
            return cn_import_refuse(node, "the batch must stay dimension 0");
        if (drop && value->dims[d] != 1)
            return cn_import_refuse(node, "dimension %u is %llu, wanted 1", d,
                                    (unsigned long long)value->dims[d]);
        if (!drop)
            dims[rank++] = value->dims[d];
    }
    return cn_import_view(node, rank, dims);
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

cn_err cn_import_slice(struct cn_import_node *node)
{
    int64_t start, end, step, numbers[NUMBERS_MAX];
    size_t start_count, end_count, step_count, count = 0;
    int64_t size;
    cn_err err;

    if (!is_shape(node, 0))
        return cn_import_refuse(node, "only shapes can be sliced");
    err = cn_import_numbers(node, 1, "starts", &start, 1, &start_count);
    if (!err)
        err = cn_import_numbers(node, 2, "ends", &end, 1, &end_count);
    if (!err)
        err = cn_import_numbers(node, 4, "steps", &step, 1, &step_count);
    if (err)
        return err;
    if (start_count != 1 || end_count != 1 || (step_count && step < 1))
        return cn_import_refuse(node, "start, end and a positive step are wanted");
    size = (int64_t)cn_import_value(node, 0)->words;
    start = clamp(start < 0 ? start + size : start, 0, size);
    end = clamp(end < 0 ? end + size : end, 0, size);
    step = step_count ? clamp(step, 1, NUMBERS_MAX) : 1;
    for (int64_t i = start; i < end && count < NUMBERS_MAX; i += step)
        numbers[count++] = numbers_of(node, 0)[i];
    return cn_import_shape(node, numbers, count, 1);
}

cn_err cn_import_cast(struct cn_import_node *node)
{
    int64_t to = cn_import_int(node, "to", 0);

    if (is_shape(node, 0) && (to == CN_ONNX_INT64 || to == CN_ONNX_INT32))
        return cn_import_identity(node);
    if (!is_shape(node, 0) && to == CN_ONNX_FLOAT)
        return cn_import_identity(node);
    return cn_import_refuse(node, "a cast to element type %lld is not supported", (long long)to);
}

static bool calculate(const struct cn_onnx_node *node, int64_t a, int64_t b, int64_t *result)
{
    if (cn_text_equal(node->op, "Add"))
        return !__builtin_add_overflow(a, b, result);
    if (cn_text_equal(node->op, "Sub"))
        return !__builtin_sub_overflow(a, b, result);
    if (cn_text_equal(node->op, "Mul"))
        return !__builtin_mul_overflow(a, b, result);
    if (!b || (b == -1 && a == INT64_MIN))
        return false;
    *result = a / b;
    return true;
}

cn_err cn_import_integer_arithmetic(struct cn_import_node *node)
{
    size_t a_count = cn_import_value(node, 0)->words, b_count = cn_import_value(node, 1)->words;
    size_t count = a_count > b_count ? a_count : b_count;
    uint32_t a_rank = cn_import_value(node, 0)->rank, b_rank = cn_import_value(node, 1)->rank;
    int64_t numbers[NUMBERS_MAX];

    if (count > NUMBERS_MAX || !a_count || !b_count || (a_count != count && a_count != 1) ||
        (b_count != count && b_count != 1))
        return cn_import_refuse(node, "%zu and %zu integers", a_count, b_count);
    for (size_t i = 0; i < count; i++)
        if (!calculate(node->node, numbers_of(node, 0)[a_count == 1 ? 0 : i],
                       numbers_of(node, 1)[b_count == 1 ? 0 : i], &numbers[i]))
            return cn_import_refuse(node, "the integers overflow");
    return cn_import_shape(node, numbers, count, a_rank > b_rank ? a_rank : b_rank);
}
