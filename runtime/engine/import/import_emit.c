#include "runtime/engine/import/import_emit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/import/import_known.h"

cn_err cn_import_add(struct cn_import_node *node, const struct cn_value *like, uint32_t *out)
{
    struct cn_value value = {.kind = CN_VALUE_ACTIVATION,
                             .rank = like->rank,
                             .batched = like->batched,
                             .batch_axis = like->batched ? like->batch_axis : 0,
                             .batch_repeats = like->batched ? like->batch_repeats : 0,
                             .shared = like->batched && like->shared,
                             .integers = like->integers,
                             .root = CN_GRAPH_NONE};

    if (like->rank > CN_GRAPH_RANK_MAX)
        return cn_import_refuse(node, "rank %u; at most %d is supported", like->rank,
                                CN_GRAPH_RANK_MAX);
    for (uint32_t d = 0; d < like->rank; d++) {
        if (!like->dims[d])
            return cn_import_refuse(node, "the result is empty: dimension %u is 0", d);
        value.dims[d] = like->dims[d];
    }
    if (cn_graph_add_value(node->graph, &value, out))
        return cn_import_refuse(node, "the result is too large");
    return CN_OK;
}

cn_err cn_import_countable(const struct cn_import_node *node, uint32_t rank, const uint64_t *dims)
{
    ptrdiff_t count = 1;

    for (uint32_t d = rank; d-- > 0;) // the innermost dim first, as strides are computed
        if (__builtin_mul_overflow(count, dims[d], &count))
            return cn_import_refuse(node, "the result is too large");
    return CN_OK;
}

cn_err cn_import_as_floats(struct cn_import_node *node, uint32_t value, uint32_t *floats)
{
    const struct cn_map from_int = {.kind = CN_MAP_FROM_INT};
    struct cn_value known = node->graph->values[value], copy;
    cn_err err;

    *floats = value;
    if (known.integers)
        return cn_import_emit_map(node, from_int, value, floats);
    if (known.kind != CN_VALUE_SHAPE)
        return CN_OK;
    err = cn_import_known_room(node, &known, false, &copy);
    copy.of_batch = cn_import_known_of_batch(node->graph, &known);
    for (size_t i = 0; !err && i < copy.words; i++)
        node->graph->constants[copy.offset + i] =
            (float)cn_import_known_float(node->graph, &known, i);
    return err ? err : cn_import_known_keep(node, &copy, floats);
}

cn_err cn_import_as_indices(struct cn_import_node *node, uint32_t value, uint32_t *indices)
{
    const struct cn_map to_int = {.kind = CN_MAP_TO_INT};
    struct cn_value known = node->graph->values[value], copy;
    cn_err err;

    *indices = value;
    if (known.integers)
        return CN_OK;
    if (!cn_import_is_known(&known))
        return cn_import_emit_map(node, to_int, value, indices);
    err = cn_import_known_room(node, &known, false, &copy);
    for (size_t i = 0; !err && i < copy.words; i++) {
        int64_t number = cn_import_known_int(node->graph, &known, i);
        int32_t index = (int32_t)number;

        if (number != index)
            return cn_import_refuse(node, "the index %" PRId64 " is out of range", number);
        memcpy(node->graph->constants + copy.offset + i, &index, sizeof(index));
    }
    copy.integers = true;
    return err ? err : cn_import_known_keep(node, &copy, indices);
}

// Sets whether all of these values are known, all are integers, and all are shared by the samples.
static void look_at(const struct cn_graph *graph, const uint32_t *in, size_t count, bool *known,
                    bool *integers, bool *shared)
{
    *known = *integers = *shared = true;
    for (size_t i = 0; i < count; i++) {
        const struct cn_value *value = &graph->values[in[i]];

        *known = *known && cn_import_is_known(value) && !value->integers;
        *integers = *integers && (value->kind == CN_VALUE_SHAPE || value->integers);
        *shared = *shared && cn_graph_is_shared(value);
    }
}

static cn_err emit_pieces(struct cn_import_node *node, const float *fill,
                          const struct cn_import_piece *pieces, size_t count, uint32_t out)
{
    cn_err err = CN_OK;

    if (fill) {
        struct cn_node call = cn_graph_node(CN_OP_FILL);

        call.call.fill = (struct cn_fill){.value = *fill, .count = node->graph->values[out].words};
        call.out[0] = out;
        err = cn_graph_add_node(node->graph, &call);
    }
    for (size_t i = 0; !err && i < count; i++) {
        struct cn_node call = cn_graph_node(CN_OP_COPY);
        bool integers = node->graph->values[out].integers;

        err = integers ? cn_import_as_indices(node, pieces[i].from, &call.in[0])
                       : cn_import_as_floats(node, pieces[i].from, &call.in[0]);
        call.call.copy = pieces[i].copy;
        call.call.copy.scale = 1;
        call.out[0] = out;
        if (!err)
            err = cn_graph_add_node(node->graph, &call);
    }
    return err;
}

cn_err cn_import_assemble(struct cn_import_node *node, const struct cn_value *like,
                          const float *fill, const struct cn_import_piece *pieces, size_t count,
                          uint32_t *out)
{
    struct cn_graph *graph = node->graph;
    struct cn_value value = *like;
    bool known = true, integers = true, shared = true;
    cn_err err;

    for (size_t i = 0; i < count; i++) {
        bool one_known, one_integers, one_shared;

        look_at(graph, &pieces[i].from, 1, &one_known, &one_integers, &one_shared);
        known = known && one_known;
        integers = integers && one_integers;
        shared = shared && one_shared;
    }
    if (known) {
        err = cn_import_known_room(node, like, integers, &value);
        for (size_t i = 0; !err && fill && i < value.words; i++)
            if (integers)
                graph->numbers[value.offset + i] = (int64_t)*fill;
            else
                graph->constants[value.offset + i] = *fill;
        for (size_t i = 0; !err && i < count; i++)
            cn_import_known_copy(graph, &graph->values[pieces[i].from], &pieces[i].copy, &value);
        return err ? err : cn_import_known_keep(node, &value, out);
    }
    value.shared = shared;
    value.integers = integers;
    err = cn_import_add(node, &value, out);
    return err ? err : emit_pieces(node, fill, pieces, count, *out);
}

cn_err cn_import_emit_map(struct cn_import_node *node, struct cn_map map, uint32_t in,
                          uint32_t *out)
{
    struct cn_node call = cn_graph_node(CN_OP_MAP);
    struct cn_value value = node->graph->values[in];
    cn_err err = CN_OK;

    if (cn_import_is_known(&value))
        return cn_import_known_map(node, &map, in, out);
    if (value.integers && map.kind != CN_MAP_FROM_INT)
        err = cn_import_as_floats(node, in, &in);
    map.count = value.words;
    call.call.map = map;
    call.in[0] = in;
    value.integers = map.kind == CN_MAP_TO_INT;
    if (!err)
        err = cn_import_add(node, &value, out);
    if (err)
        return err;
    node->graph->values[*out].is_sum = value.is_sum && map.kind == CN_MAP_SCALE && map.beta == 0;
    call.out[0] = *out;
    return cn_graph_add_node(node->graph, &call);
}

cn_err cn_import_repeat_samples(struct cn_import_node *node)
{
    struct cn_node call = cn_graph_node(CN_OP_COMBINE);
    struct cn_value x = *cn_import_value(node, 0), none = {0};
    const float zero = 0;
    cn_err err;

    if (!x.batched || !x.shared)
        return CN_OK;
    // Adds 0 instead of copying: the gradient of a sum adds up over the samples.
    call.call.combine = (struct cn_combine){
        .kind = CN_COMBINE_ADD, .rank = 1, .dims = {x.words}, .a = {1}, .scale = 1};
    x.shared = x.integers = false;
    err = cn_import_as_floats(node, node->in[0], &call.in[0]);
    if (!err)
        err = cn_import_add_known(node, &none, NULL, &zero, &call.in[1]);
    if (!err)
        err = cn_import_add(node, &x, &node->in[0]);
    call.out[0] = node->in[0];
    return err ? err : cn_graph_add_node(node->graph, &call);
}

static bool rows_are_the_same(const struct cn_graph *graph, const struct cn_value *x, size_t outer,
                              size_t inner)
{
    for (size_t o = 0; o < outer; o++)
        for (size_t i = inner; i < graph->batch * inner; i++) {
            size_t first = o * graph->batch * inner;

            if (cn_import_known_float(graph, x, first + i) !=
                cn_import_known_float(graph, x, first + i % inner))
                return false;
        }
    return true;
}

cn_err cn_import_share_rows(struct cn_import_node *node, uint32_t axis, uint32_t *value)
{
    struct cn_graph *graph = node->graph;
    struct cn_value x = graph->values[*value], like = x, shared;
    struct cn_copy copy = {.rank = 2, .dims = {1, 1}, .x = {0, 1}, .y = {0, 1}, .scale = 1};
    cn_err err;

    if (!cn_import_is_known(&x) || x.integers || x.batched || axis >= x.rank || graph->batch == 1 ||
        x.dims[axis] != graph->batch || !x.words)
        return CN_OK;
    err = cn_import_work(node, x.words);
    if (err)
        return err;
    for (uint32_t d = 0; d < x.rank; d++)
        if (d != axis)
            copy.dims[d > axis] *= (size_t)x.dims[d];
    if (!rows_are_the_same(graph, &x, copy.dims[0], copy.dims[1]))
        return CN_OK;
    copy.x[0] = (ptrdiff_t)(graph->batch * copy.dims[1]);
    copy.y[0] = (ptrdiff_t)copy.dims[1];
    like.batched = true;
    like.batch_axis = axis;
    like.batch_repeats = 1;
    err = cn_import_known_room(node, &like, x.kind == CN_VALUE_SHAPE, &shared);
    if (err)
        return err;
    cn_import_known_copy(graph, &x, &copy, &shared);
    return cn_import_known_keep(node, &shared, value);
}

// Turns repeated rows in the operands of an elementwise call into shared ones.
static cn_err share_operands(struct cn_import_node *node, uint32_t *in, size_t count)
{
    const struct cn_graph *graph = node->graph;
    uint32_t rank = 0, axis = CN_GRAPH_NONE;
    cn_err err = CN_OK;

    for (size_t i = 0; i < count; i++)
        rank = graph->values[in[i]].rank > rank ? graph->values[in[i]].rank : rank;
    for (size_t i = 0; i < count; i++)
        if (graph->values[in[i]].batched && cn_graph_batch_repeats(&graph->values[in[i]]) == 1)
            axis = graph->values[in[i]].batch_axis + rank - graph->values[in[i]].rank;
    for (size_t i = 0; !err && axis != CN_GRAPH_NONE && i < count; i++) {
        uint32_t missing = rank - graph->values[in[i]].rank;

        if (axis >= missing)
            err = cn_import_share_rows(node, axis - missing, &in[i]);
    }
    return err;
}

cn_err cn_import_refuse_rows(const struct cn_import_node *node, uint64_t size)
{
    return cn_import_refuse(node, size == node->graph->batch
                                      ? "a weight has a part for each sample of a fixed batch: "
                                        "export the model with an open batch"
                                      : "the operands do not agree on the batch dimension");
}

cn_err cn_import_broadcast(struct cn_import_node *node, const uint32_t *in, size_t count,
                           struct cn_value *result)
{
    const struct cn_graph *graph = node->graph;

    *result = (struct cn_value){.shared = true};
    for (size_t i = 0; i < count; i++)
        if (graph->values[in[i]].rank > result->rank)
            result->rank = graph->values[in[i]].rank;
    for (size_t i = 0; i < count; i++) {
        const struct cn_value *value = &graph->values[in[i]];
        uint32_t axis = value->batch_axis + result->rank - value->rank;

        if (!value->batched)
            continue;
        if (result->batched && (result->batch_axis != axis ||
                                cn_graph_batch_repeats(result) != cn_graph_batch_repeats(value)))
            return cn_import_refuse(node, "the operands do not agree on the batch dimension");
        result->batched = true;
        result->batch_axis = axis;
        result->batch_repeats = value->batch_repeats;
        result->shared = result->shared && value->shared;
    }
    for (uint32_t d = 0; d < result->rank; d++) {
        result->dims[d] = 1;
        for (size_t i = 0; i < count; i++) {
            const struct cn_value *value = &graph->values[in[i]];
            uint32_t missing = result->rank - value->rank;
            uint64_t size = d < missing ? 1 : value->dims[d - missing];

            if (size != 1 && result->dims[d] != 1 && size != result->dims[d])
                return cn_import_refuse(
                    node, "the operands have sizes %" PRIu64 " and %" PRIu64 " in dimension %u",
                    result->dims[d], size, d);
            if (result->batched && d == result->batch_axis && !value->batched && size != 1)
                return cn_import_refuse_rows(node, size);
            result->dims[d] = size != 1 ? size : result->dims[d];
        }
    }
    // The batch may be 1 in the file, or the operands may agree on more than the batch.
    for (size_t i = 0; i < count; i++) {
        const struct cn_value *value = &graph->values[in[i]];

        if (value->batched && value->dims[value->batch_axis] != result->dims[result->batch_axis])
            return cn_import_refuse(node, "the operands do not agree on the batch dimension");
    }
    return CN_OK;
}

void cn_import_broadcast_strides(const struct cn_graph *graph, const struct cn_value *operand,
                                 const struct cn_value *result, size_t *strides)
{
    uint64_t dims[CN_GRAPH_RANK_MAX];
    size_t stride = 1;

    cn_graph_sample_dims(graph, operand, dims);
    for (uint32_t d = result->rank; d-- > 0;) {
        uint64_t size =
            d + operand->rank < result->rank ? 1 : dims[d + operand->rank - result->rank];

        strides[d] = size == 1 ? 0 : stride;
        stride *= size;
    }
}

// Merges neighbouring dims that are contiguous in all operands, and drops dims of 1.
static void fold_dims(struct cn_combine *op, uint32_t rank, const uint64_t *dims,
                      size_t strides[3][CN_GRAPH_RANK_MAX])
{
    size_t *const to[3] = {op->a, op->b, op->condition};

    op->rank = 0;
    for (uint32_t d = 0; d < rank; d++) {
        bool merge = op->rank > 0;

        if (dims[d] == 1)
            continue;
        for (int i = 0; merge && i < 3; i++)
            merge = to[i][op->rank - 1] == strides[i][d] * dims[d];
        op->rank += !merge;
        op->dims[op->rank - 1] = merge ? op->dims[op->rank - 1] * dims[d] : dims[d];
        for (int i = 0; i < 3; i++)
            to[i][op->rank - 1] = strides[i][d];
    }
    if (!op->rank) {
        op->rank = 1;
        op->dims[0] = op->a[0] = op->b[0] = op->condition[0] = 1;
    }
}

// Adds an elementwise call. in is a, b and, with where, the condition.
static cn_err emit_elementwise(struct cn_import_node *node, enum cn_combine_kind kind, bool where,
                               uint32_t in[3], uint32_t *out)
{
    struct cn_node call = cn_graph_node(where ? CN_OP_WHERE : CN_OP_COMBINE);
    size_t strides[3][CN_GRAPH_RANK_MAX] = {{0}}, count = where ? 3 : 2;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    struct cn_value result;
    bool known, integers, shared;
    cn_err err = share_operands(node, in, count);

    if (!err)
        err = cn_import_broadcast(node, in, count, &result);
    if (err)
        return err;
    cn_graph_sample_dims(node->graph, &result, dims);
    for (size_t i = 0; i < count; i++)
        cn_import_broadcast_strides(node->graph, &node->graph->values[in[i]], &result, strides[i]);
    call.call.combine = (struct cn_combine){.kind = kind, .scale = 1};
    fold_dims(&call.call.combine, result.rank, dims, strides);
    look_at(node->graph, in, count, &known, &integers, &shared);
    if (known)
        return cn_import_known_combine(node, &call.call.combine, where, in, &result, out);
    for (size_t i = 0; !err && i < count; i++)
        err = cn_import_as_floats(node, in[i], &call.in[i]);
    if (!err)
        err = cn_import_add(node, &result, out);
    call.out[0] = *out;
    return err ? err : cn_graph_add_node(node->graph, &call);
}

// Returns whether the operand is one known number that does not change the result's shape.
static bool is_number(const struct cn_graph *graph, uint32_t operand, uint32_t other, float *number)
{
    const struct cn_value *value = &graph->values[operand];

    if (!cn_import_is_known(value) || value->integers || value->words != 1 || value->batched ||
        value->rank > graph->values[other].rank || cn_import_is_known(&graph->values[other]))
        return false;
    *number = (float)cn_import_known_float(graph, value, 0);
    return true;
}

// Expresses arithmetic with one known number as a map. Returns false when there is no such map.
static bool as_map(const struct cn_graph *graph, enum cn_combine_kind kind, uint32_t a, uint32_t b,
                   struct cn_map *map, uint32_t *in)
{
    float number;
    bool right = is_number(graph, b, a, &number);

    if (!right && !is_number(graph, a, b, &number))
        return false;
    *in = right ? a : b;
    *map = (struct cn_map){.kind = CN_MAP_SCALE, .alpha = 1};
    switch (kind) {
    case CN_COMBINE_ADD:
        map->beta = number;
        return true;
    case CN_COMBINE_SUB:
        map->alpha = right ? 1 : -1;
        map->beta = right ? -number : number;
        return true;
    case CN_COMBINE_MUL:
        map->alpha = number;
        return true;
    case CN_COMBINE_DIV:
        map->alpha = right ? 1 / number : 1;
        return right && number != 0;
    case CN_COMBINE_POWER:
        map->kind = CN_MAP_POWER;
        map->alpha = number;
        return right;
    default:
        return false;
    }
}

// Returns whether the result is a sum for the purpose of square roots: products of sums, and their
// multiples by known values, are 0 with a slope of 0 where the sums are 0.
static bool stays_sum(const struct cn_graph *graph, enum cn_combine_kind kind, uint32_t a,
                      uint32_t b)
{
    const struct cn_value *x = &graph->values[a], *y = &graph->values[b];
    bool x_fits = x->is_sum || cn_import_is_known(x), y_fits = y->is_sum || cn_import_is_known(y);

    if (kind == CN_COMBINE_DIV)
        return x->is_sum && cn_import_is_known(y);
    return kind == CN_COMBINE_MUL && x_fits && y_fits && (x->is_sum || y->is_sum);
}

cn_err cn_import_emit_combine(struct cn_import_node *node, enum cn_combine_kind kind, uint32_t a,
                              uint32_t b, uint32_t *out)
{
    uint32_t in[3] = {a, b, CN_GRAPH_NONE};
    struct cn_map map;
    uint32_t from;
    bool is_sum;
    cn_err err = cn_import_take_size(node, &a, b);

    if (!err)
        err = cn_import_take_size(node, &b, a);
    if (err)
        return err;
    in[0] = a;
    in[1] = b;
    if (as_map(node->graph, kind, a, b, &map, &from))
        return cn_import_emit_map(node, map, from, out);
    is_sum = stays_sum(node->graph, kind, a, b);
    err = emit_elementwise(node, kind, false, in, out);
    if (!err)
        node->graph->values[*out].is_sum = is_sum;
    return err;
}

cn_err cn_import_emit_where(struct cn_import_node *node, uint32_t condition, uint32_t a, uint32_t b,
                            uint32_t *out)
{
    uint32_t in[3] = {a, b, condition};

    return emit_elementwise(node, CN_COMBINE_ADD, true, in, out);
}

// Finds a dimension that can hold the batch, `repeats` times or, if that is 0, any number of times.
// `before` is the product of the dims before it.
static bool find_batch(uint64_t batch, uint64_t before, uint64_t repeats, struct cn_value *x)
{
    uint64_t outer = 1;

    for (uint32_t d = 0; d < x->rank && outer; d++) {
        uint64_t times = before / outer, samples;

        if (before % outer == 0 && (!repeats || times == repeats) &&
            !__builtin_mul_overflow(times, batch, &samples) && samples &&
            x->dims[d] % samples == 0) {
            x->batch_axis = d;
            x->batch_repeats = times;
            return true;
        }
        outer *= x->dims[d];
    }
    return false;
}

cn_err cn_import_find_batch(struct cn_import_node *node, const struct cn_value *from,
                            struct cn_value *x)
{
    const uint64_t batch = node->graph->batch;
    uint64_t before = cn_graph_batch_repeats(from);

    if (!from->batched)
        return CN_OK;
    for (uint32_t d = 0; d < from->batch_axis; d++)
        before *= from->dims[d];
    if (find_batch(batch, before, 1, x) || find_batch(batch, before, 0, x))
        return CN_OK;
    return cn_import_refuse(node, "the new shape mixes samples of the batch");
}

cn_err cn_import_axis(const struct cn_import_node *node, int64_t axis, uint32_t rank,
                      uint32_t *found)
{
    int64_t from_start = axis < 0 ? axis + (int64_t)rank : axis;

    if (from_start < 0 || from_start >= (int64_t)rank)
        return cn_import_refuse(node, "axis %" PRId64 " is outside of rank %u", axis, rank);
    *found = (uint32_t)from_start;
    return CN_OK;
}

cn_err cn_import_axes(const struct cn_import_node *node, size_t input, uint32_t rank, bool *marked,
                      size_t *count)
{
    int64_t axes[CN_GRAPH_RANK_MAX];
    cn_err err = cn_import_numbers(node, input, "axes", axes, CN_GRAPH_RANK_MAX, count);

    for (size_t i = 0; !err && i < *count; i++) {
        uint32_t axis = 0;

        err = cn_import_axis(node, axes[i], rank, &axis);
        if (!err && marked[axis])
            err = cn_import_refuse(node, "axis %" PRId64 " is named twice", axes[i]);
        if (!err)
            marked[axis] = true;
    }
    return err;
}

cn_err cn_import_read_reduction(const struct cn_import_node *node,
                                struct cn_import_reduction *reduction)
{
    const struct cn_value *x = cn_import_value(node, 0);
    struct cn_value *result = &reduction->result;
    bool *marked = reduction->marked;
    size_t count;
    cn_err err;

    *reduction = (struct cn_import_reduction){
        .keep = cn_import_int(node, "keepdims", 1) != 0, .elements = 1, .result = *x};
    err = cn_import_axes(node, 1, x->rank, marked, &count);
    if (err)
        return err;
    reduction->nothing = !count && cn_import_int(node, "noop_with_empty_axes", 0);
    for (uint32_t d = 0; !count && d < x->rank; d++)
        marked[d] = !reduction->nothing;
    if (x->batched && marked[x->batch_axis])
        return cn_import_refuse(node, "a reduction over the batch is not supported");
    result->rank = 0;
    for (uint32_t d = 0; d < x->rank; d++) {
        reduction->elements *= marked[d] ? x->dims[d] : 1;
        if (x->batched && d == x->batch_axis)
            result->batch_axis = result->rank;
        if (!marked[d] || reduction->keep)
            result->dims[result->rank++] = marked[d] ? 1 : x->dims[d];
    }
    return CN_OK;
}
