// Ops that only change a shape: the result is the input's memory.
#include <inttypes.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

cn_err cn_import_view(struct cn_import_node *node, uint32_t rank, const uint64_t *dims)
{
    const struct cn_value *x = cn_import_value(node, 0);
    struct cn_value value = *x;
    cn_err err;

    if (rank > CN_GRAPH_RANK_MAX)
        return cn_import_refuse(node, "rank %u; at most %d is supported", rank, CN_GRAPH_RANK_MAX);
    value.rank = rank;
    for (uint32_t d = 0; d < rank; d++) {
        if (!dims[d] && x->words)
            return cn_import_refuse(node, "the result is empty: dimension %u is 0", d);
        value.dims[d] = dims[d];
    }
    err = cn_import_find_batch(node, x, &value);
    if (err)
        return err;
    if (cn_graph_add_value(node->graph, &value, &node->out))
        return cn_import_refuse(node, "the result is too large");
    return CN_OK;
}

cn_err cn_import_flatten(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    int64_t axis = cn_import_int(node, "axis", 1);
    uint64_t dims[2] = {1, 1};

    axis = axis < 0 ? axis + x->rank : axis;
    if (axis < 0 || axis > x->rank)
        return cn_import_refuse(node, "axis %" PRId64 " is outside of rank %u", axis, x->rank);
    for (uint32_t d = 0; d < x->rank; d++)
        if (__builtin_mul_overflow(dims[d < axis ? 0 : 1], x->dims[d], &dims[d < axis ? 0 : 1]))
            return cn_import_refuse(node, "the input is too large");
    return cn_import_view(node, 2, dims);
}

// Replaces 0 (copy) and -1 (the rest) in the wanted shape.
static cn_err resolve_shape(const struct cn_import_node *node, const int64_t *wanted, size_t rank,
                            uint64_t *dims)
{
    const struct cn_value *x = cn_import_value(node, 0);
    uint64_t total = 1, known = 1;
    size_t rest = rank;

    for (uint32_t d = 0; d < x->rank; d++)
        if (__builtin_mul_overflow(total, x->dims[d], &total))
            return cn_import_refuse(node, "the input is too large");
    for (size_t d = 0; d < rank; d++) {
        dims[d] = wanted[d] > 0 ? (uint64_t)wanted[d] : 1;
        if (wanted[d] < -1 || (wanted[d] == -1 && rest != rank) ||
            (wanted[d] == 0 && (d >= x->rank || cn_import_int(node, "allowzero", 0))))
            return cn_import_refuse(node, "element %zu of the new shape is %" PRId64, d, wanted[d]);
        if (wanted[d] == -1)
            rest = d;
        if (wanted[d] == 0)
            dims[d] = x->dims[d];
        if (__builtin_mul_overflow(known, dims[d], &known))
            return cn_import_refuse(node, "the new shape is too large");
    }
    if (rest < rank && known && total % known == 0)
        dims[rest] = total / known;
    if (!known || (rest < rank ? total % known != 0 : total != known))
        return cn_import_refuse(node, "the new shape does not have the input's number of elements");
    return CN_OK;
}

cn_err cn_import_reshape(struct cn_import_node *node)
{
    int64_t wanted[CN_GRAPH_RANK_MAX];
    uint64_t dims[CN_GRAPH_RANK_MAX] = {0};
    size_t rank;
    cn_err err = cn_import_numbers(node, 1, "shape", wanted, CN_GRAPH_RANK_MAX, &rank);

    if (!err)
        err = resolve_shape(node, wanted, rank, dims);
    return err ? err : cn_import_view(node, (uint32_t)rank, dims);
}

cn_err cn_import_unsqueeze(struct cn_import_node *node)
{
    const struct cn_value *value = cn_import_value(node, 0);
    bool marked[2 * CN_GRAPH_RANK_MAX] = {false};
    uint64_t dims[2 * CN_GRAPH_RANK_MAX];
    int64_t axes[CN_GRAPH_RANK_MAX];
    size_t count, from = 0;
    uint32_t rank;
    cn_err err = cn_import_numbers(node, 1, "axes", axes, CN_GRAPH_RANK_MAX, &count);

    if (err)
        return err;
    rank = value->rank + (uint32_t)count;
    err = cn_import_axes(node, 1, rank, marked, &count);
    if (err)
        return err;
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = marked[d] ? 1 : value->dims[from++];
    return cn_import_view(node, rank, dims);
}

// Without axes every dimension of 1 is removed, except the batch.
cn_err cn_import_squeeze(struct cn_import_node *node)
{
    const struct cn_value *value = cn_import_value(node, 0);
    bool marked[CN_GRAPH_RANK_MAX] = {false};
    uint64_t dims[CN_GRAPH_RANK_MAX];
    uint32_t rank = 0;
    size_t count;
    cn_err err = cn_import_axes(node, 1, value->rank, marked, &count);

    if (err)
        return err;
    for (uint32_t d = 0; d < value->rank; d++) {
        bool batch = value->batched && d == value->batch_axis;
        bool drop = count ? marked[d] : value->dims[d] == 1 && !batch;

        if (drop && value->dims[d] != 1)
            return cn_import_refuse(node, "dimension %u is %" PRIu64 ", wanted 1", d,
                                    value->dims[d]);
        if (!drop)
            dims[rank++] = value->dims[d];
    }
    return cn_import_view(node, rank, dims);
}

cn_err cn_import_identity(struct cn_import_node *node)
{
    node->out = node->in[0];
    return CN_OK;
}
