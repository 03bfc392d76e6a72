// Ops that move elements: results are assembled from strided pieces of the inputs.
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

// Fills in the strides of dense dims; the last dim is the innermost. Dims whose strides overflow
// are refused elsewhere.
static void dense_strides(uint32_t rank, const uint64_t *dims, ptrdiff_t *strides)
{
    ptrdiff_t stride = 1;

    for (uint32_t d = rank; d-- > 0;) {
        strides[d] = stride;
        (void)__builtin_mul_overflow(stride, dims[d], &stride);
    }
}

// Returns whether a dimension and the next one, of this size, can be merged: one step along the
// first is `size` steps along the next.
static bool runs_on(ptrdiff_t stride, ptrdiff_t next, ptrdiff_t size)
{
    return !__builtin_mul_overflow(next, size, &next) && stride == next;
}

// Drops dims of 1 and merges neighbours that are contiguous on both sides.
static void fold_copy(struct cn_copy *copy)
{
    uint32_t rank = 0;

    for (uint32_t d = 0; d < copy->rank; d++) {
        ptrdiff_t size = (ptrdiff_t)copy->dims[d];

        if (size == 1)
            continue;
        if (rank && runs_on(copy->x[rank - 1], copy->x[d], size) &&
            runs_on(copy->y[rank - 1], copy->y[d], size)) {
            copy->dims[rank - 1] *= (size_t)size;
            copy->x[rank - 1] = copy->x[d];
            copy->y[rank - 1] = copy->y[d];
            continue;
        }
        copy->dims[rank] = (size_t)size;
        copy->x[rank] = copy->x[d];
        copy->y[rank] = copy->y[d];
        rank++;
    }
    if (!rank) {
        copy->dims[0] = 1;
        copy->x[0] = copy->y[0] = 1;
        rank = 1;
    }
    copy->rank = rank;
}

// Adds a result that one piece fills. Element (i, j, ...) of a sample comes from x_offset + i *
// x[0] + j * x[1] + ... .
static cn_err emit_one(struct cn_import_node *node, struct cn_value *result, const ptrdiff_t *x,
                       size_t x_offset, uint32_t *out)
{
    struct cn_import_piece piece = {.from = node->in[0]};
    uint64_t dims[CN_GRAPH_RANK_MAX];
    struct cn_copy *copy = &piece.copy;

    cn_graph_sample_dims(node->graph, result, dims);
    copy->rank = result->rank;
    for (uint32_t d = 0; d < copy->rank; d++) {
        copy->dims[d] = (size_t)dims[d];
        copy->x[d] = x[d];
    }
    dense_strides(copy->rank, dims, copy->y);
    copy->x_offset = x_offset;
    fold_copy(copy);
    return cn_import_assemble(node, result, NULL, &piece, 1, out);
}

static cn_err read_permutation(const struct cn_import_node *node, uint32_t rank, uint32_t *from)
{
    const struct cn_onnx_attribute *perm = cn_onnx_attribute_find(node->node, "perm");
    bool seen[CN_GRAPH_RANK_MAX] = {false};

    if (perm && perm->count != rank)
        return cn_import_refuse(node, "'perm' has %zu elements, wanted %u", perm->count, rank);
    for (uint32_t d = 0; d < rank; d++) {
        int64_t axis = perm ? perm->ints[d] : (int64_t)(rank - 1 - d);

        if (axis < 0 || axis >= rank || seen[axis])
            return cn_import_refuse(node, "'perm' is no permutation");
        seen[axis] = true;
        from[d] = (uint32_t)axis;
    }
    return CN_OK;
}

// Returns whether the elements of a sample stay in place.
static bool keeps_order(const uint64_t *dims, const uint32_t *from, uint32_t rank)
{
    uint32_t last = 0;

    for (uint32_t d = 0; d < rank; d++) {
        if (dims[from[d]] == 1)
            continue;
        if (from[d] < last)
            return false;
        last = from[d];
    }
    return true;
}

// Makes a view of a matrix with rows and columns exchanged: products read it without a copy.
cn_err cn_import_exchange(struct cn_import_node *node)
{
    struct cn_value value = *cn_import_value(node, 0);
    uint64_t rows = value.dims[0];

    if (value.batched)
        return cn_import_refuse(node, "samples cannot be transposed here");
    value.dims[0] = value.dims[1];
    value.dims[1] = rows;
    value.transposed = !value.transposed;
    return cn_graph_add_value(node->graph, &value, &node->out);
}

cn_err cn_import_transpose(struct cn_import_node *node)
{
    struct cn_value x = *cn_import_value(node, 0), result = x;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    ptrdiff_t strides[CN_GRAPH_RANK_MAX], permuted[CN_GRAPH_RANK_MAX];
    uint32_t from[CN_GRAPH_RANK_MAX] = {0};
    cn_err err = read_permutation(node, x.rank, from);

    if (err)
        return err;
    if (x.rank == 2 && x.kind == CN_VALUE_PARAM && !x.batched && from[0] == 1)
        return cn_import_exchange(node);
    if (x.transposed)
        return cn_import_identity(node); // for rank 2, the permutation that changes nothing
    cn_graph_sample_dims(node->graph, &x, dims);
    dense_strides(x.rank, dims, strides);
    for (uint32_t d = 0; d < x.rank; d++) {
        result.dims[d] = x.dims[from[d]];
        permuted[d] = strides[from[d]];
        if (x.batched && from[d] == x.batch_axis)
            result.batch_axis = d;
    }
    if (keeps_order(dims, from, x.rank))
        return cn_graph_add_value(node->graph, &result, &node->out);
    return emit_one(node, &result, permuted, 0, &node->out);
}

cn_err cn_import_materialise(struct cn_import_node *node, size_t input)
{
    struct cn_value x = *cn_import_value(node, input), result = x;
    struct cn_import_node copy = *node;
    ptrdiff_t strides[2] = {1, (ptrdiff_t)x.dims[0]};
    cn_err err;

    result.transposed = false;
    copy.in[0] = node->in[input];
    err = emit_one(&copy, &result, strides, 0, &node->in[input]);
    return err;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

struct slice {
    size_t count;
    int64_t starts[CN_GRAPH_RANK_MAX], ends[CN_GRAPH_RANK_MAX];
    int64_t axes[CN_GRAPH_RANK_MAX], steps[CN_GRAPH_RANK_MAX];
};

static cn_err read_slice(const struct cn_import_node *node, struct slice *slice)
{
    size_t ends, axes, steps;
    cn_err err =
        cn_import_numbers(node, 1, "starts", slice->starts, CN_GRAPH_RANK_MAX, &slice->count);

    if (!err)
        err = cn_import_numbers(node, 2, "ends", slice->ends, CN_GRAPH_RANK_MAX, &ends);
    if (!err)
        err = cn_import_numbers(node, 3, "axes", slice->axes, CN_GRAPH_RANK_MAX, &axes);
    if (!err)
        err = cn_import_numbers(node, 4, "steps", slice->steps, CN_GRAPH_RANK_MAX, &steps);
    if (err)
        return err;
    if (ends != slice->count || (axes && axes != slice->count) || (steps && steps != slice->count))
        return cn_import_refuse(node, "starts, ends, axes and steps differ in number");
    for (size_t i = 0; i < slice->count; i++) {
        slice->axes[i] = axes ? slice->axes[i] : (int64_t)i;
        slice->steps[i] = steps ? slice->steps[i] : 1;
        if (!slice->steps[i] || slice->steps[i] == INT64_MIN)
            return cn_import_refuse(node, "a step of %" PRId64 " is not supported",
                                    slice->steps[i]);
    }
    return CN_OK;
}

// Computes one axis of a slice: its first element and the number of elements.
static void slice_axis(int64_t size, int64_t start, int64_t end, int64_t step, int64_t *first,
                       int64_t *count)
{
    assert(step != 0);
    start = start < 0 ? start + size : start;
    end = end < 0 && end > INT64_MIN + size ? end + size : end;
    *first = step > 0 ? clamp(start, 0, size) : clamp(start, 0, size - 1);
    end = step > 0 ? clamp(end, 0, size) : clamp(end, -1, size - 1);
    *count = step > 0 ? (end - *first + step - 1) / step : (*first - end - step - 1) / -step;
    *count = *count < 0 ? 0 : *count;
}

cn_err cn_import_slice(struct cn_import_node *node)
{
    struct cn_value x = *cn_import_value(node, 0), result = x;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    ptrdiff_t strides[CN_GRAPH_RANK_MAX];
    struct slice slice;
    size_t offset = 0;
    bool whole = true;
    cn_err err = read_slice(node, &slice);

    if (err)
        return err;
    cn_graph_sample_dims(node->graph, &x, dims);
    dense_strides(x.rank, dims, strides);
    for (size_t i = 0; i < slice.count; i++) {
        uint32_t axis;
        int64_t first, count;

        err = cn_import_axis(node, slice.axes[i], x.rank, &axis);
        if (err)
            return err;
        slice_axis((int64_t)x.dims[axis], slice.starts[i], slice.ends[i],
                   clamp(slice.steps[i], -INT32_MAX, INT32_MAX), &first, &count);
        if (first == 0 && (uint64_t)count == x.dims[axis] && slice.steps[i] == 1)
            continue;
        if (x.batched && axis == x.batch_axis)
            return cn_import_refuse(node, "the batch cannot be sliced");
        whole = false;
        offset += (size_t)first * (size_t)strides[axis];
        strides[axis] *= (ptrdiff_t)clamp(slice.steps[i], -INT32_MAX, INT32_MAX);
        result.dims[axis] = (uint64_t)count;
    }
    if (whole)
        return cn_import_identity(node);
    return emit_one(node, &result, strides, offset, &node->out);
}

// Defines an output other than the first.
static void set_output(struct cn_import_node *node, size_t i, uint32_t value)
{
    if (i)
        node->more[i - 1] = value;
    else
        node->out = value;
}

static cn_err read_parts(const struct cn_import_node *node, uint64_t size, int64_t *parts)
{
    size_t outputs = node->node->output_count, count;
    uint64_t part = outputs ? (size + outputs - 1) / outputs : 0;
    int64_t left = (int64_t)size;
    cn_err err = CN_OK;

    if (cn_import_int(node, "num_outputs", (int64_t)outputs) != (int64_t)outputs)
        return cn_import_refuse(node, "num_outputs is not the number of outputs, %zu", outputs);
    if (!outputs || outputs > CN_IMPORT_OUTPUTS)
        return cn_import_refuse(node, "%zu outputs; at most %d are supported", outputs,
                                CN_IMPORT_OUTPUTS);
    err = cn_import_numbers(node, 1, "split", parts, CN_IMPORT_OUTPUTS, &count);
    if (err)
        return err;
    if (count && count != outputs)
        return cn_import_refuse(node, "%zu parts and %zu outputs", count, outputs);
    for (size_t i = 0; i < outputs; i++) {
        if (!count)
            parts[i] = i + 1 < outputs ? (int64_t)part : left;
        if (parts[i] < 1 || parts[i] > left)
            return cn_import_refuse(node, "the sizes of the parts do not add up to %" PRIu64, size);
        left -= parts[i];
    }
    return left ? cn_import_refuse(node, "the sizes of the parts do not add up to %" PRIu64, size)
                : CN_OK;
}

cn_err cn_import_split(struct cn_import_node *node)
{
    struct cn_value x = *cn_import_value(node, 0), result = x;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    ptrdiff_t strides[CN_GRAPH_RANK_MAX];
    int64_t parts[CN_IMPORT_OUTPUTS] = {0};
    size_t first = 0;
    uint32_t axis, value;
    cn_err err = cn_import_axis(node, cn_import_int(node, "axis", 0), x.rank, &axis);

    if (!err && x.batched && axis == x.batch_axis)
        err = cn_import_refuse(node, "the batch cannot be split");
    if (!err)
        err = read_parts(node, x.dims[axis], parts);
    cn_graph_sample_dims(node->graph, &x, dims);
    dense_strides(x.rank, dims, strides);
    for (size_t i = 0; !err && i < node->node->output_count; i++) {
        result.dims[axis] = (uint64_t)parts[i];
        err = emit_one(node, &result, strides, first * (size_t)strides[axis], &value);
        first += (size_t)parts[i];
        set_output(node, i, value);
    }
    return err;
}

// Computes the dims of a result of Concat. Operands that are not batched repeat for all samples.
static cn_err concat_dims(struct cn_import_node *node, uint32_t axis, struct cn_value *result)
{
    uint64_t total = 0;

    *result = *cn_import_value(node, 0);
    for (size_t i = 0; i < node->in_count; i++)
        if (cn_import_value(node, i)->batched) {
            result->batched = true;
            result->batch_axis = cn_import_value(node, i)->batch_axis;
            result->batch_repeats = cn_import_value(node, i)->batch_repeats;
            result->dims[result->batch_axis] = cn_import_value(node, i)->dims[result->batch_axis];
        }
    if (result->batched && axis == result->batch_axis)
        return cn_import_refuse(node, "samples cannot be concatenated");
    for (size_t i = 0; result->batched && i < node->in_count; i++) {
        cn_err err = cn_import_share_rows(node, result->batch_axis, &node->in[i]);

        if (err)
            return err;
        if (!cn_import_value(node, i)->batched && cn_import_value(node, i)->rank == result->rank &&
            cn_import_value(node, i)->dims[result->batch_axis] != 1)
            return cn_import_refuse_rows(node, cn_import_value(node, i)->dims[result->batch_axis]);
    }
    for (size_t i = 0; i < node->in_count; i++) {
        const struct cn_value *part = cn_import_value(node, i);

        if (part->rank != result->rank)
            return cn_import_refuse(node, "the operands have ranks %u and %u", result->rank,
                                    part->rank);
        if (part->batched && (part->batch_axis != result->batch_axis ||
                              cn_graph_batch_repeats(part) != cn_graph_batch_repeats(result)))
            return cn_import_refuse(node, "the operands do not agree on the batch dimension");
        for (uint32_t d = 0; d < part->rank; d++)
            if (d != axis && part->dims[d] != result->dims[d])
                return cn_import_refuse(
                    node, "the operands have sizes %" PRIu64 " and %" PRIu64 " in dimension %u",
                    result->dims[d], part->dims[d], d);
        if (__builtin_add_overflow(total, part->dims[axis], &total) || total > INT64_MAX)
            return cn_import_refuse(node, "the result is too large");
    }
    result->dims[axis] = total;
    return CN_OK;
}

cn_err cn_import_concat(struct cn_import_node *node)
{
    struct cn_import_piece pieces[CN_IMPORT_INPUTS];
    uint64_t dims[CN_GRAPH_RANK_MAX], whole[CN_GRAPH_RANK_MAX];
    struct cn_value result;
    size_t count = 0, offset = 0;
    uint32_t axis, rank = cn_import_value(node, 0)->rank;
    cn_err err = cn_import_axis(node, cn_import_int(node, "axis", 0), rank, &axis);

    if (!err)
        err = concat_dims(node, axis, &result);
    if (err)
        return err;
    cn_graph_sample_dims(node->graph, &result, whole);
    for (size_t i = 0; i < node->in_count; i++) {
        struct cn_copy *copy = &pieces[count].copy;
        const struct cn_value *part = cn_import_value(node, i);

        if (!part->words)
            continue;
        *copy = (struct cn_copy){.rank = rank};
        cn_graph_sample_dims(node->graph, part, dims);
        for (uint32_t d = 0; d < rank; d++)
            copy->dims[d] = (size_t)dims[d];
        dense_strides(rank, dims, copy->x);
        dense_strides(rank, whole, copy->y);
        copy->y_offset = offset * (size_t)copy->y[axis];
        offset += part->dims[axis];
        fold_copy(copy);
        pieces[count++].from = node->in[i];
    }
    return cn_import_assemble(node, &result, NULL, pieces, count, &node->out);
}

// Repeats x along the dims where it has size 1. If x is not batched, the new dims may include the
// batch; all samples then share its memory.
cn_err cn_import_expand_to(struct cn_import_node *node, struct cn_value *result)
{
    struct cn_value x = *cn_import_value(node, 0);
    size_t strides[CN_GRAPH_RANK_MAX];
    ptrdiff_t from[CN_GRAPH_RANK_MAX];
    uint64_t dims[CN_GRAPH_RANK_MAX];
    bool same = true;

    cn_graph_sample_dims(node->graph, result, dims);
    cn_import_broadcast_strides(node->graph, &x, result, strides);
    for (uint32_t d = 0; d < result->rank; d++) {
        from[d] = (ptrdiff_t)strides[d];
        same = same && (dims[d] == 1 || strides[d]);
    }
    if (!same)
        return emit_one(node, result, from, 0, &node->out);
    // Only the batch or dims of 1 are new.
    x.rank = result->rank;
    memcpy(x.dims, result->dims, sizeof(x.dims));
    x.shared = result->batched && cn_graph_is_shared(&x);
    x.batched = result->batched;
    x.batch_axis = result->batch_axis;
    x.batch_repeats = result->batch_repeats;
    return cn_graph_add_value(node->graph, &x, &node->out);
}

cn_err cn_import_expand(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    const uint64_t batch = node->graph->batch;
    int64_t shape[CN_GRAPH_RANK_MAX];
    struct cn_value result = {.shared = true};
    size_t rank;
    cn_err err = cn_import_numbers(node, 1, "shape", shape, CN_GRAPH_RANK_MAX, &rank);

    if (err)
        return err;
    result.rank = rank > x->rank ? (uint32_t)rank : x->rank;
    if (x->batched) {
        result.batched = true;
        result.shared = x->shared;
        result.batch_axis = x->batch_axis + result.rank - x->rank;
        result.batch_repeats = x->batch_repeats;
    }
    for (uint32_t d = 0; d < result.rank; d++) {
        uint64_t size = d + x->rank < result.rank ? 1 : x->dims[d + x->rank - result.rank];
        int64_t wanted = d + rank < result.rank ? 1 : shape[d + rank - result.rank];

        if (wanted < 1 || (size != 1 && wanted != 1 && (uint64_t)wanted != size))
            return cn_import_refuse(node, "%" PRIu64 " elements cannot be expanded to %" PRId64,
                                    size, wanted);
        result.dims[d] = size != 1 ? size : (uint64_t)wanted;
        // The first dimension that becomes as large as the batch is the batch, unless x has one.
        if (!result.batched && batch > 1 && size == 1 && result.dims[d] == batch) {
            result.batched = true;
            result.batch_axis = d;
        }
    }
    return cn_import_expand_to(node, &result);
}

cn_err cn_import_tile(struct cn_import_node *node)
{
    struct cn_value x = *cn_import_value(node, 0), result = x;
    const uint64_t batch = node->graph->batch;
    struct cn_import_piece piece = {.from = node->in[0]};
    uint64_t dims[CN_GRAPH_RANK_MAX], whole[CN_GRAPH_RANK_MAX];
    ptrdiff_t from[CN_GRAPH_RANK_MAX] = {0}, to[CN_GRAPH_RANK_MAX] = {0};
    int64_t repeats[CN_GRAPH_RANK_MAX] = {0};
    uint32_t used = 0;
    size_t count;
    cn_err err = cn_import_numbers(node, 1, "repeats", repeats, CN_GRAPH_RANK_MAX, &count);

    if (err)
        return err;
    if (count != x.rank)
        return cn_import_refuse(node, "%zu repeats of rank %u", count, x.rank);
    for (uint32_t d = 0; d < x.rank; d++) {
        if (repeats[d] < 1 ||
            __builtin_mul_overflow(x.dims[d], (uint64_t)repeats[d], &result.dims[d]))
            return cn_import_refuse(node, "%" PRId64 " repeats", repeats[d]);
        if (x.batched && d == x.batch_axis && repeats[d] != 1)
            return cn_import_refuse(node, "the batch cannot be repeated");
        if (!result.batched && batch > 1 && x.dims[d] == 1 && (uint64_t)repeats[d] == batch) {
            result.batched = result.shared = true;
            result.batch_axis = d;
            repeats[d] = 1;
        }
    }
    cn_graph_sample_dims(node->graph, &x, dims);
    cn_graph_sample_dims(node->graph, &result, whole);
    err = cn_import_countable(node, x.rank, whole);
    if (err)
        return err;
    dense_strides(x.rank, dims, from);
    dense_strides(x.rank, whole, to);
    for (uint32_t d = 0; d < x.rank; d++) {
        const struct {
            size_t size;
            ptrdiff_t x, y;
        } parts[2] = {{(size_t)repeats[d], 0, to[d] * (ptrdiff_t)dims[d]},
                      {(size_t)dims[d], from[d], to[d]}};

        for (int i = 0; i < 2; i++) {
            if (parts[i].size == 1)
                continue;
            if (used == CN_COMBINE_RANK_MAX)
                return cn_import_refuse(node, "too many dimensions are repeated");
            piece.copy.dims[used] = parts[i].size;
            piece.copy.x[used] = parts[i].x;
            piece.copy.y[used++] = parts[i].y;
        }
    }
    piece.copy.rank = used;
    fold_copy(&piece.copy);
    return cn_import_assemble(node, &result, NULL, &piece, 1, &node->out);
}
