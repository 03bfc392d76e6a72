// Gather, GatherElements, GatherND, ScatterND: embeddings, and elements at known places.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/import/import_known.h"

#define COPIES_MAX 4 // known places that are copied one by one, without a gather

// Fills in the dims of the result: those of x, with the axis replaced by the dims of the index.
static cn_err gather_dims(struct cn_import_node *node, const struct cn_value *x,
                          const struct cn_value *index, uint32_t axis, struct cn_value *result)
{
    if (x->rank + index->rank > CN_GRAPH_RANK_MAX + 1)
        return cn_import_refuse(
            node, "data of rank %u and indices of rank %u: the result has too many dimensions",
            x->rank, index->rank);
    if (x->batched && (index->batched || axis == x->batch_axis))
        return cn_import_refuse(node, "picking samples out of the batch is not supported");
    *result = (struct cn_value){.rank = x->rank + index->rank - 1,
                                .batched = x->batched || index->batched,
                                .shared = cn_graph_is_shared(x) && cn_graph_is_shared(index),
                                .integers = x->integers};
    memcpy(result->dims, x->dims, axis * sizeof(*x->dims));
    memcpy(result->dims + axis, index->dims, index->rank * sizeof(*x->dims));
    memcpy(result->dims + axis + index->rank, x->dims + axis + 1,
           (x->rank - axis - 1) * sizeof(*x->dims));
    result->batch_repeats = index->batched ? index->batch_repeats : x->batch_repeats;
    if (index->batched)
        result->batch_axis = axis + index->batch_axis;
    else if (x->batched)
        result->batch_axis = x->batch_axis < axis ? x->batch_axis : x->batch_axis + index->rank - 1;
    return CN_OK;
}

static void gather_geometry(const struct cn_graph *graph, const struct cn_value *x, uint32_t axis,
                            struct cn_gather *gather)
{
    uint64_t dims[CN_GRAPH_RANK_MAX];

    cn_graph_sample_dims(graph, x, dims);
    gather->outer = gather->inner = 1;
    for (uint32_t d = 0; d < axis; d++)
        gather->outer *= dims[d];
    for (uint32_t d = axis + 1; d < x->rank; d++)
        gather->inner *= dims[d];
    gather->rows = dims[axis];
}

// Checks known indices. Indices of the samples are checked where they are used.
static cn_err check_indices(const struct cn_import_node *node, const struct cn_value *index,
                            size_t rows)
{
    cn_err err = cn_import_work(node, index->words);

    for (size_t i = 0; !err && i < index->words; i++) {
        int64_t at = cn_import_known_int(node->graph, index, i);

        if (at < -(int64_t)rows || at >= (int64_t)rows)
            return cn_import_refuse(node, "index %" PRId64 " is outside of %zu elements", at, rows);
    }
    return err;
}

// Gathers rows of computed values at a few known places by strided copies.
static cn_err gather_pieces(struct cn_import_node *node, const struct cn_value *index,
                            const struct cn_gather *gather, const struct cn_value *result)
{
    struct cn_import_piece pieces[COPIES_MAX] = {{0}};

    for (size_t i = 0; i < index->words; i++) {
        int64_t at = cn_import_known_int(node->graph, index, i);
        struct cn_copy *copy = &pieces[i].copy;

        pieces[i].from = node->in[0];
        *copy = (struct cn_copy){.rank = 2, .dims = {gather->outer, gather->inner}};
        copy->x[0] = (ptrdiff_t)(gather->rows * gather->inner);
        copy->y[0] = (ptrdiff_t)(index->words * gather->inner);
        copy->x[1] = copy->y[1] = 1;
        copy->x_offset = (size_t)(at < 0 ? at + (int64_t)gather->rows : at) * gather->inner;
        copy->y_offset = i * gather->inner;
    }
    return cn_import_assemble(node, result, NULL, pieces, index->words, &node->out);
}

static cn_err emit_gather(struct cn_import_node *node, struct cn_gather gather,
                          const struct cn_value *result)
{
    struct cn_node call = cn_graph_node(CN_OP_GATHER);
    cn_err err = CN_OK;

    call.in[0] = node->in[0];
    if (!result->integers)
        err = cn_import_as_floats(node, node->in[0], &call.in[0]);
    if (!err)
        err = cn_import_as_indices(node, node->in[1], &call.in[1]);
    if (!err)
        err = cn_import_add(node, result, &node->out);
    call.call.gather = gather;
    call.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &call);
}

cn_err cn_import_gather(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0), index = *cn_import_value(node, 1);
    struct cn_gather gather = {.count = index.words};
    struct cn_value result = {0};
    uint32_t axis;
    cn_err err = cn_import_axis(node, cn_import_int(node, "axis", 0), x.rank, &axis);

    if (!err)
        err = gather_dims(node, &x, &index, axis, &result);
    if (err)
        return err;
    gather_geometry(node->graph, &x, axis, &gather);
    if (!cn_import_is_known(&index) || index.integers)
        return emit_gather(node, gather, &result);
    err = check_indices(node, &index, gather.rows);
    if (err)
        return err;
    if (cn_import_is_known(&x) && !x.integers)
        return cn_import_known_gather(node, &gather, &index, &result);
    if (index.words <= COPIES_MAX)
        return gather_pieces(node, &index, &gather, &result);
    return emit_gather(node, gather, &result);
}

cn_err cn_import_gather_rows(struct cn_import_node *node, int64_t rows)
{
    const struct cn_value x = *cn_import_value(node, 0), index = *cn_import_value(node, 1);
    struct cn_gather gather = {.count = index.words};
    struct cn_value within = x, result = {0};
    uint32_t axis;
    cn_err err = cn_import_axis(node, cn_import_int(node, "axis", 0), x.rank, &axis);

    if (err)
        return err;
    if (!x.batched || axis != x.batch_axis || cn_graph_batch_repeats(&x) != 1 ||
        x.dims[axis] / node->graph->batch != (uint64_t)rows)
        return cn_import_refuse(
            node, "indices made from sample numbers times %" PRId64 " are not the samples' rows",
            rows);
    within.batched = false;
    err = gather_dims(node, &within, &index, axis, &result);
    if (err)
        return err;
    result.shared = x.shared && cn_graph_is_shared(&index);
    gather_geometry(node->graph, &x, axis, &gather);
    if (cn_import_is_known(&index)) {
        err = check_indices(node, &index, gather.rows);
        if (err)
            return err;
    }
    return emit_gather(node, gather, &result);
}

cn_err cn_import_gather_elements(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0), index = *cn_import_value(node, 1);
    struct cn_gather gather = {.elements = true};
    struct cn_value result = index;
    uint32_t axis;
    cn_err err = cn_import_axis(node, cn_import_int(node, "axis", 0), x.rank, &axis);

    if (err)
        return err;
    if (x.rank != index.rank || x.batched != index.batched ||
        (x.batched && (x.batch_axis != index.batch_axis || axis == x.batch_axis)))
        return cn_import_refuse(node, "the operands do not agree on the batch dimension");
    for (uint32_t d = 0; d < x.rank; d++)
        if (d != axis && x.dims[d] != index.dims[d])
            return cn_import_refuse(
                node, "the operands have sizes %" PRIu64 " and %" PRIu64 " in dimension %u",
                x.dims[d], index.dims[d], d);
    gather_geometry(node->graph, &x, axis, &gather);
    gather.count = index.dims[axis];
    result.integers = x.integers;
    result.shared = cn_graph_is_shared(&x) && cn_graph_is_shared(&index);
    if (cn_import_is_known(&index) && !index.integers)
        err = check_indices(node, &index, gather.rows);
    return err ? err : emit_gather(node, gather, &result);
}

// Turns indices along the first `count` dimensions, one row of index each, into single indices
// along all of these dimensions joined.
static cn_err flatten_places(struct cn_import_node *node, const struct cn_value *x, uint32_t count,
                             const struct cn_value *index, uint32_t *out)
{
    struct cn_value like = {.rank = index->rank - 1,
                            .batched = index->batched,
                            .batch_axis = index->batch_axis,
                            .batch_repeats = index->batch_repeats};
    struct cn_value flat;
    cn_err err;

    memcpy(like.dims, index->dims, like.rank * sizeof(*like.dims));
    err = cn_import_known_room(node, &like, true, &flat);
    if (!err)
        err = cn_import_work(node, index->words);
    for (size_t i = 0; !err && i < flat.words; i++) {
        int64_t place = 0;

        for (uint32_t d = 0; d < count; d++) {
            int64_t size = (int64_t)x->dims[d];
            int64_t at = cn_import_known_int(node->graph, index, i * count + d);

            if (at < -size || at >= size)
                return cn_import_refuse(
                    node, "index %" PRId64 " is outside of %" PRId64 " elements", at, size);
            place = place * size + (at < 0 ? at + size : at);
        }
        node->graph->numbers[flat.offset + i] = place;
    }
    return err ? err : cn_import_known_keep(node, &flat, out);
}

// Joins the first dimensions into one, and gathers along it.
cn_err cn_import_gather_nd(struct cn_import_node *node)
{
    struct cn_value x = *cn_import_value(node, 0);
    const struct cn_value index = *cn_import_value(node, 1);
    uint32_t count = index.rank ? (uint32_t)index.dims[index.rank - 1] : 0;
    cn_err err;

    if (!cn_import_is_known(&index) || index.integers || index.batched)
        return cn_import_refuse(node, "the indices must be known before training");
    if (cn_import_int(node, "batch_dims", 0) || !count || count > x.rank ||
        (x.batched && x.batch_axis < count))
        return cn_import_refuse(node, "picking samples out of the batch is not supported");
    err = flatten_places(node, &x, count, &index, &node->in[1]);
    for (uint32_t d = 1; d < count; d++)
        x.dims[0] *= x.dims[d];
    memmove(x.dims + 1, x.dims + count, (x.rank - count) * sizeof(*x.dims));
    x.rank -= count - 1;
    x.batch_axis -= x.batched ? count - 1 : 0;
    if (!err)
        err = cn_graph_add_value(node->graph, &x, &node->in[0]);
    return err ? err : cn_import_gather(node);
}

// Joins the indices within each sample into one, and gathers from the rows of that sample.
cn_err cn_import_gather_places(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0), index = *cn_import_value(node, 1);
    uint64_t count = index.dims[index.rank - 1];
    const int64_t last = (int64_t)index.rank - 1;
    struct cn_value places = x;
    int64_t dims[CN_GRAPH_RANK_MAX] = {-1}, rows = 1;
    uint32_t shape, rank = 1;
    cn_err err;

    if (!x.batched || x.batch_axis || x.dims[0] != node->graph->batch || count >= x.rank ||
        cn_import_int(node, "batch_dims", 0))
        return cn_import_refuse(
            node, "with sample numbers as indices, the batch must be the first dimension");
    for (uint32_t d = 1; d < x.rank; d++)
        if (d <= count)
            rows *= (int64_t)x.dims[d];
        else
            dims[rank++] = (int64_t)x.dims[d];
    memcpy(places.dims, x.dims + 1, count * sizeof(*x.dims));
    if (cn_import_is_known(&index)) {
        err = flatten_places(node, &places, (uint32_t)count, &index, &node->in[1]);
    } else if (count == 1) {
        err = cn_import_shape(node, &last, 1, 1);
        if (!err)
            err = cn_import_apply(node, "Squeeze", NULL, NULL, 0,
                                  (uint32_t[]){node->in[1], node->out}, 2, &node->in[1]);
    } else {
        return cn_import_refuse(node, "several computed indices in each sample are not supported");
    }
    if (!err)
        err = cn_import_shape(node, dims, rank, 1);
    shape = node->out;
    if (!err)
        err = cn_import_apply(node, "Reshape", NULL, NULL, 0, (uint32_t[]){node->in[0], shape}, 2,
                              &node->in[0]);
    return err ? err : cn_import_gather_rows(node, rows);
}

// Finds the first element of the slice that a row of indices names. Refuses indices outside data.
static cn_err find_slice(const struct cn_import_node *node, const struct cn_value *data,
                         const struct cn_value *indices, size_t row, uint64_t depth, size_t *first)
{
    *first = 0;
    for (uint32_t d = 0; d < depth; d++) {
        int64_t size = (int64_t)data->dims[d];
        int64_t at = cn_import_known_int(node->graph, indices, row * depth + d);

        if (at < -size || at >= size)
            return cn_import_refuse(node, "index %" PRId64 " is outside of %" PRId64 " elements",
                                    at, size);
        *first = *first * (size_t)size + (size_t)(at < 0 ? at + size : at);
    }
    for (uint32_t d = (uint32_t)depth; d < data->rank; d++)
        *first *= (size_t)data->dims[d];
    return CN_OK;
}

// ScatterND into a known value, as in masks that a model writes piece by piece.
static cn_err scatter_known(struct cn_import_node *node, const size_t *first, size_t slices,
                            size_t size)
{
    const struct cn_value data = *cn_import_value(node, 0), updates = *cn_import_value(node, 2);
    struct cn_copy copy = {.rank = 1, .dims = {data.words}, .x = {1}, .y = {1}};
    struct cn_value result;
    cn_err err = cn_import_known_room(node, &data, data.kind == CN_VALUE_SHAPE, &result);

    if (err)
        return err;
    cn_import_known_copy(node->graph, &data, &copy, &result);
    copy.dims[0] = size;
    for (size_t i = 0; i < slices; i++) {
        copy.x_offset = i * size;
        copy.y_offset = first[i];
        cn_import_known_copy(node->graph, &updates, &copy, &result);
    }
    return cn_import_known_keep(node, &result, &node->out);
}

// ScatterND into a weight: joins the slices of data and updates, and gathers the ones that remain.
static cn_err scatter_slices(struct cn_import_node *node, const size_t *first, size_t slices,
                             size_t size)
{
    const struct cn_value data = *cn_import_value(node, 0);
    const struct cn_value like = {.rank = 1, .dims = {data.words / size}};
    struct cn_value order;
    const int64_t rows[2] = {-1, (int64_t)size};
    const int64_t axis = 0;
    int64_t dims[CN_GRAPH_RANK_MAX];
    uint32_t shape, parts[2], all;
    cn_err err = cn_import_shape(node, rows, 2, 1);

    shape = node->out;
    for (int i = 0; !err && i < 2; i++)
        err = cn_import_apply(node, "Reshape", NULL, NULL, 0, (uint32_t[]){node->in[2 * i], shape},
                              2, &parts[i]);
    if (!err)
        err = cn_import_apply(node, "Concat", "axis", &axis, 1, parts, 2, &all);
    if (!err)
        err = cn_import_known_room(node, &like, true, &order);
    for (size_t i = 0; !err && i < order.words; i++)
        node->graph->numbers[order.offset + i] = (int64_t)i;
    for (size_t i = 0; !err && i < slices; i++)
        node->graph->numbers[order.offset + first[i] / size] = (int64_t)(order.words + i);
    if (!err)
        err = cn_import_known_keep(node, &order, &shape);
    if (!err)
        err = cn_import_apply(node, "Gather", "axis", &axis, 1, (uint32_t[]){all, shape}, 2, &all);
    for (uint32_t d = 0; d < data.rank; d++)
        dims[d] = (int64_t)data.dims[d];
    if (!err)
        err = cn_import_shape(node, dims, data.rank, 1);
    return err ? err
               : cn_import_apply(node, "Reshape", NULL, NULL, 0, (uint32_t[]){all, node->out}, 2,
                                 &node->out);
}

static cn_err check_scatter(const struct cn_import_node *node)
{
    const struct cn_onnx_attribute *reduction = cn_onnx_attribute_find(node->node, "reduction");

    if (reduction && !cn_text_equal(reduction->s, "none"))
        return cn_import_refuse(node, "the reduction '%.*s' is not supported",
                                (int)reduction->s.size, reduction->s.data);
    for (size_t i = 0; i < 3; i++)
        if (cn_import_value(node, i)->batched)
            return cn_import_refuse(node, "operands that depend on the samples are not supported");
    return cn_import_is_known(cn_import_value(node, 1))
               ? CN_OK
               : cn_import_refuse(node, "the indices must be known before training");
}

// Replaces slices of data, found by its first dimensions, by the slices of the updates.
cn_err cn_import_scatter_nd(struct cn_import_node *node)
{
    const struct cn_value data = *cn_import_value(node, 0), indices = *cn_import_value(node, 1);
    const struct cn_value updates = *cn_import_value(node, 2);
    uint64_t depth = indices.rank ? indices.dims[indices.rank - 1] : 0;
    size_t slices, size = 1, *first;
    cn_err err = check_scatter(node);

    if (err)
        return err;
    if (!depth || depth > data.rank || !data.words || !updates.words)
        return cn_import_refuse(
            node, "an index has %" PRIu64 " numbers; wanted 1 to %u, the rank of the data", depth,
            data.rank);
    slices = indices.words / depth;
    for (uint32_t d = (uint32_t)depth; d < data.rank; d++)
        size *= data.dims[d];
    if (updates.words / size != slices || updates.words % size)
        return cn_import_refuse(node, "%zu elements for %zu slices of %zu", updates.words, slices,
                                size);
    err = cn_import_work(node, indices.words + updates.words);
    if (err)
        return err;
    first = malloc(slices * sizeof(*first));
    if (!first)
        return CN_ENOMEM;
    for (size_t i = 0; !err && i < slices; i++)
        err = find_slice(node, &data, &indices, i, depth, &first[i]);
    if (!err && cn_import_is_known(&data) && cn_import_is_known(&updates))
        err = scatter_known(node, first, slices, size);
    else if (!err)
        err = scatter_slices(node, first, slices, size);
    free(first);
    return err;
}
