// Copies and gathers: the gradient goes back to where each element was taken from.
#include "runtime/engine/graph/autodiff_private.h"

// A part of a value: elements at offset + i * stride[0] + ... for i in dims.
struct part {
    uint32_t value;
    uint32_t rank;
    const size_t *dims;
    ptrdiff_t stride[CN_COMBINE_RANK_MAX];
    size_t offset;
};

static void dense_strides(uint32_t rank, const size_t *dims, ptrdiff_t *strides)
{
    ptrdiff_t stride = 1;

    for (uint32_t d = rank; d-- > 0;) {
        strides[d] = stride;
        stride *= (ptrdiff_t)dims[d];
    }
}

static size_t count_of(uint32_t rank, const size_t *dims)
{
    size_t count = 1;

    for (uint32_t d = 0; d < rank; d++)
        count *= dims[d];
    return count;
}

// Returns whether the part is the whole value, in any order.
static bool is_whole(const struct cn_graph *graph, const struct part *part)
{
    if (count_of(part->rank, part->dims) != graph->values[part->value].words)
        return false;
    for (uint32_t d = 0; d < part->rank; d++)
        if (part->dims[d] > 1 && !part->stride[d])
            return false;
    return true;
}

// Returns whether the part is the whole value, in memory order.
static bool is_dense(const struct cn_graph *graph, const struct part *part)
{
    ptrdiff_t dense[CN_COMBINE_RANK_MAX];

    if (part->offset || !is_whole(graph, part))
        return false;
    dense_strides(part->rank, part->dims, dense);
    for (uint32_t d = 0; d < part->rank; d++)
        if (part->dims[d] > 1 && part->stride[d] != dense[d])
            return false;
    return true;
}

// Adds an activation of count words for each sample, or once for all samples if shared.
static cn_err add_words(struct cn_autodiff *diff, bool shared, size_t count, uint32_t *index)
{
    struct cn_value value = {.kind = CN_VALUE_ACTIVATION, .rank = 2, .root = CN_GRAPH_NONE};

    value.batched = !shared;
    value.dims[0] = shared ? 1 : diff->graph->batch;
    value.dims[1] = count;
    return cn_graph_add_value(diff->graph, &value, index);
}

static struct cn_node copy_node(const struct part *from, const struct part *to)
{
    struct cn_node node = cn_graph_node(CN_OP_COPY);
    struct cn_copy *copy = &node.call.copy;

    copy->rank = to->rank;
    copy->scale = 1;
    for (uint32_t d = 0; d < to->rank; d++) {
        copy->dims[d] = to->dims[d];
        copy->x[d] = from->stride[d];
        copy->y[d] = to->stride[d];
    }
    copy->x_offset = from->offset;
    copy->y_offset = to->offset;
    node.in[0] = from->value;
    node.out[0] = to->value;
    return node;
}

// Makes the part a value of its own, unless it is one.
static cn_err make_dense(struct cn_autodiff *diff, struct part *part)
{
    struct part dense = {.rank = part->rank, .dims = part->dims};
    struct cn_node node;
    cn_err err;

    if (is_dense(diff->graph, part))
        return CN_OK;
    dense_strides(part->rank, part->dims, dense.stride);
    err = add_words(diff, cn_graph_is_shared(&diff->graph->values[part->value]),
                    count_of(part->rank, part->dims), &dense.value);
    if (err)
        return err;
    node = copy_node(part, &dense);
    *part = dense;
    return cn_graph_add_node(diff->graph, &node);
}

// Adds from to its place in the gradient of to's value, which is an activation.
static cn_err add_to_activation(struct cn_autodiff *diff, const struct part *from, struct part to)
{
    uint32_t root = cn_graph_root(diff->graph, to.value), target = to.value;
    struct cn_node node;
    cn_err err;

    if (is_whole(diff->graph, &to)) {
        node = copy_node(from, &to);
        return cn_autodiff_emit(diff, &node, target);
    }
    // If a copy added its piece last, this piece is added to the same gradient in place. Otherwise
    // the gradient gets another summand, which is 0 outside of the piece.
    if (diff->gradient[root] == CN_GRAPH_NONE || diff->gradient[root] != diff->assembled[root]) {
        err = cn_autodiff_activation(diff, target, &to.value);
        if (!err)
            err = cn_autodiff_clear(diff, to.value, CN_WRITE_SET);
        node = copy_node(from, &to);
        node.call.write = CN_WRITE_ADD;
        if (!err)
            err = cn_graph_add_node(diff->graph, &node);
        if (!err)
            err = cn_autodiff_share(diff, target, to.value);
        diff->assembled[root] = diff->gradient[root];
        return err;
    }
    to.value = diff->gradient[root];
    node = copy_node(from, &to);
    node.call.write = CN_WRITE_ADD;
    return cn_graph_add_node(diff->graph, &node);
}

static cn_err add_to_parameter(struct cn_autodiff *diff, const struct part *from, struct part to)
{
    uint32_t root = cn_graph_root(diff->graph, to.value);
    enum cn_write write = diff->written[root] ? CN_WRITE_ADD : CN_WRITE_STEP;
    struct cn_node node;
    cn_err err = cn_autodiff_parameter(diff, root, &to.value);

    diff->written[root] = true;
    if (!err)
        err = cn_autodiff_clear(diff, to.value, write);
    node = copy_node(from, &to);
    node.call.write = CN_WRITE_ADD;
    return err ? err : cn_graph_add_node(diff->graph, &node);
}

// Sums the dense part from over the dims along which to repeats, and over the samples if they share
// to. Adds the sum to the gradient of to's value. dims has room for the dims that are left.
static cn_err sum_repeats(struct cn_autodiff *diff, struct part *from, struct part *to,
                          size_t *dims)
{
    struct cn_node node = cn_graph_node(CN_OP_COMBINE_GRAD);
    struct cn_combine *op = &node.call.combine;
    bool shared = cn_graph_is_shared(&diff->graph->values[to->value]);
    uint32_t rank = 0;
    size_t stride = 1;
    cn_err err;

    *op = (struct cn_combine){.kind = CN_COMBINE_ADD, .rank = from->rank, .scale = 1};
    for (uint32_t d = from->rank; d-- > 0;) {
        bool repeats = from->dims[d] > 1 && !to->stride[d];

        op->dims[d] = from->dims[d];
        op->a[d] = repeats ? 0 : stride;
        stride *= repeats ? 1 : from->dims[d];
    }
    for (uint32_t d = 0; d < from->rank; d++)
        if (op->a[d]) {
            dims[rank] = from->dims[d];
            to->stride[rank++] = to->stride[d];
        }
    if (!rank) {
        dims[0] = 1;
        to->stride[rank++] = 1;
    }
    to->dims = dims;
    to->rank = rank;
    node.in[0] = from->value;
    if (is_dense(diff->graph, to))
        return cn_autodiff_emit(diff, &node, to->value);
    err = add_words(diff, shared, stride, &node.out[0]);
    from->value = node.out[0];
    from->rank = rank;
    from->dims = dims;
    from->offset = 0;
    dense_strides(rank, dims, from->stride);
    if (!err)
        err = cn_graph_add_node(diff->graph, &node);
    if (err)
        return err;
    return diff->graph->values[to->value].kind == CN_VALUE_PARAM
               ? add_to_parameter(diff, from, *to)
               : add_to_activation(diff, from, *to);
}

cn_err cn_autodiff_copy(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    const struct cn_copy *copy = &forward->call.copy;
    const struct cn_graph *graph = diff->graph;
    struct part from = {.value = dy, .rank = copy->rank, .dims = copy->dims};
    struct part to = {.value = forward->in[0], .rank = copy->rank, .dims = copy->dims};
    size_t dims[CN_COMBINE_RANK_MAX];
    bool sums =
        cn_graph_is_shared(&graph->values[to.value]) && !cn_graph_is_shared(&graph->values[dy]);
    cn_err err;

    if (!cn_autodiff_needs(diff, to.value))
        return CN_OK;
    from.offset = copy->y_offset;
    to.offset = copy->x_offset;
    for (uint32_t d = 0; d < copy->rank; d++) {
        from.stride[d] = copy->y[d];
        to.stride[d] = copy->x[d];
        sums = sums || (copy->dims[d] > 1 && !copy->x[d]);
    }
    if (sums) {
        err = make_dense(diff, &from);
        return err ? err : sum_repeats(diff, &from, &to, dims);
    }
    return graph->values[to.value].kind == CN_VALUE_PARAM ? add_to_parameter(diff, &from, to)
                                                          : add_to_activation(diff, &from, to);
}

// Fill: the earlier content is overwritten, so the gradient ends here.
cn_err cn_autodiff_fill(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    (void)diff;
    (void)forward;
    (void)dy;
    return CN_OK;
}

cn_err cn_autodiff_gather(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_GATHER_GRAD);

    if (!cn_autodiff_needs(diff, forward->in[0]))
        return CN_OK;
    node.call.gather = forward->call.gather;
    node.in[0] = dy;
    node.in[1] = forward->in[1];
    return cn_autodiff_emit(diff, &node, forward->in[0]);
}
