// Gather, GatherElements, GatherND: embeddings, and elements at known places.
#include <string.h>

#include "runtime/engine/import_known.h"

#define COPIES_MAX 4 // known places that are copied one by one, without a gather

// Dims of the result: those of x with the axis replaced by those of the index.
static cn_err gather_dims(struct cn_import_node *node, const struct cn_value *x,
                          const struct cn_value *index, uint32_t axis, struct cn_value *result)
{
    if (x->rank + index->rank > CN_GRAPH_RANK_MAX + 1)
        return cn_import_refuse(node, "ranks %u and %u", x->rank, index->rank);
    if (x->batched && (index->batched || axis == x->batch_axis))
        return cn_import_refuse(node, "samples of the batch cannot be picked out");
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

// Known indices are checked here; those of the samples, where they are used.
static cn_err check_indices(const struct cn_import_node *node, const struct cn_value *index,
                            size_t rows)
{
    cn_err err = cn_import_work(node, index->words);

    for (size_t i = 0; !err && i < index->words; i++) {
        int64_t at = cn_import_known_int(node->graph, index, i);

        if (at < -(int64_t)rows || at >= (int64_t)rows)
            return cn_import_refuse(node, "index %lld of %zu elements", (long long)at, rows);
    }
    return err;
}

// Rows of computed values at a few known places, as strided copies.
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
            return cn_import_refuse(node, "sizes %llu and %llu in dimension %u",
                                    (unsigned long long)x.dims[d],
                                    (unsigned long long)index.dims[d], d);
    gather_geometry(node->graph, &x, axis, &gather);
    gather.count = index.dims[axis];
    result.integers = x.integers;
    result.shared = cn_graph_is_shared(&x) && cn_graph_is_shared(&index);
    if (cn_import_is_known(&index) && !index.integers)
        err = check_indices(node, &index, gather.rows);
    return err ? err : emit_gather(node, gather, &result);
}

// Places along the first dimensions, a row of index for each, as numbers along all of them.
static cn_err flatten_places(struct cn_import_node *node, const struct cn_value *x, uint32_t count,
                             const struct cn_value *index, uint32_t *out)
{
    struct cn_value like = {.rank = index->rank - 1}, flat;
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
                return cn_import_refuse(node, "index %lld of %lld elements", (long long)at,
                                        (long long)size);
            place = place * size + (at < 0 ? at + size : at);
        }
        node->graph->numbers[flat.offset + i] = place;
    }
    return err ? err : cn_graph_add_value(node->graph, &flat, out);
}

// The first dimensions as one, and a Gather along it.
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
        return cn_import_refuse(node, "samples of the batch cannot be picked out");
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
