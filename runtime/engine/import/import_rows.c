// Ops over some of the dimensions: softmax, layer normalization, sums and means.
#include <string.h>

#include "runtime/engine/import/import_known.h"

cn_err cn_import_softmax(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0);
    struct cn_node call = cn_graph_node(CN_OP_SOFTMAX);
    struct cn_softmax *op = &call.call.softmax;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    uint32_t axis;
    cn_err err = cn_import_axis(node, cn_import_int(node, "axis", -1), x.rank, &axis);

    if (!err)
        err = cn_import_refuse_size(node);
    if (err)
        return err;
    if (x.batched && axis == x.batch_axis)
        return cn_import_refuse(node, "the axis must not be the batch");
    cn_graph_sample_dims(node->graph, &x, dims);
    *op = (struct cn_softmax){.outer = 1,
                              .cols = dims[axis],
                              .inner = 1,
                              .log = cn_text_equal(node->node->op, "LogSoftmax")};
    for (uint32_t d = 0; d < axis; d++)
        op->outer *= dims[d];
    for (uint32_t d = axis + 1; d < x.rank; d++)
        op->inner *= dims[d];
    err = cn_import_as_floats(node, node->in[0], &call.in[0]);
    if (!err)
        err = cn_import_add(node, &x, &node->out);
    call.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &call);
}

// Checks the scale or bias of a normalization: one number for each element normalized together.
static cn_err read_affine(struct cn_import_node *node, size_t input, size_t cols, uint32_t *out)
{
    if (!cn_import_has(node, input))
        return CN_OK;
    if (cn_import_value(node, input)->batched || cn_import_value(node, input)->words != cols)
        return cn_import_refuse(node, "scale and bias must have %zu elements", cols);
    return cn_import_as_floats(node, node->in[input], out);
}

// Adds the two numbers for each row that the gradient needs.
static cn_err add_saved(struct cn_import_node *node, const struct cn_value *x, size_t rows,
                        uint32_t *out)
{
    struct cn_value saved = {
        .rank = 3, .batched = x->batched, .shared = x->shared, .dims = {1, rows, 2}};

    if (x->batched)
        saved.dims[0] = node->graph->batch;
    return cn_import_add(node, &saved, out);
}

cn_err cn_import_layer_norm(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0);
    struct cn_node call = cn_graph_node(CN_OP_NORM);
    struct cn_norm *op = &call.call.norm;
    uint32_t axis;
    cn_err err = cn_import_axis(node, cn_import_int(node, "axis", -1), x.rank, &axis);

    if (!err)
        err = cn_import_refuse_size(node);
    if (err)
        return err;
    if (x.batched && axis <= x.batch_axis)
        return cn_import_refuse(node, "the batch must be before the axis");
    if (node->node->output_count > 1 &&
        (node->node->outputs[1].size ||
         (node->node->output_count > 2 && node->node->outputs[2].size)))
        return cn_import_refuse(node, "mean and deviation as outputs are not supported");
    *op = (struct cn_norm){
        .cols = 1, .groups = 1, .inner = 1, .epsilon = cn_import_float(node, "epsilon", 1e-5f)};
    for (uint32_t d = axis; d < x.rank; d++)
        op->cols *= x.dims[d];
    op->rows = x.words / op->cols;
    err = cn_import_as_floats(node, node->in[0], &call.in[0]);
    if (!err)
        err = read_affine(node, 1, op->cols, &call.in[1]);
    if (!err)
        err = read_affine(node, 2, op->cols, &call.in[2]);
    if (!err)
        err = cn_import_add(node, &x, &node->out);
    if (!err)
        err = add_saved(node, &x, op->rows, &call.out[1]);
    call.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &call);
}

// Adds the sum over the marked dims, times scale. The op is the gradient of an operand that repeats
// along these dims.
static cn_err emit_sum(struct cn_import_node *node, const bool *marked, float scale,
                       struct cn_value *result)
{
    const struct cn_value x = *cn_import_value(node, 0);
    struct cn_node call = cn_graph_node(CN_OP_COMBINE_GRAD);
    struct cn_combine *op = &call.call.combine;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    size_t stride = 1;
    cn_err err;

    *op = (struct cn_combine){.kind = CN_COMBINE_ADD, .rank = x.rank, .scale = scale};
    cn_graph_sample_dims(node->graph, &x, dims);
    for (uint32_t d = x.rank; d-- > 0;) {
        op->dims[d] = (size_t)dims[d];
        op->a[d] = marked[d] ? 0 : stride;
        stride *= marked[d] ? 1 : dims[d];
    }
    err = cn_import_as_floats(node, node->in[0], &call.in[0]);
    if (!err)
        err = cn_import_add(node, result, &node->out);
    call.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &call);
}

// Returns whether the mean is a plain average over planes, as exporters write global pooling.
static bool is_over_planes(const struct cn_value *x, const bool *marked)
{
    if (x->rank < 3 || x->rank > 4 || !x->batched || x->shared || x->batch_axis || marked[0] ||
        marked[1])
        return false;
    for (uint32_t d = 2; d < x->rank; d++)
        if (!marked[d])
            return false;
    return true;
}

cn_err cn_import_reduce(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0);
    bool mean = cn_text_equal(node->node->op, "ReduceMean");
    struct cn_import_reduction reduction;
    cn_err err = cn_import_read_reduction(node, &reduction);

    if (err)
        return err;
    if (reduction.nothing)
        return cn_import_identity(node);
    if (cn_import_is_known(&x) && !x.integers)
        return cn_import_known_reduce(node, reduction.marked, &reduction.result);
    if (mean && is_over_planes(&x, reduction.marked)) {
        err = cn_import_global_average_pool(node);
        if (!err && !reduction.keep)
            node->graph->values[node->out].rank = 2;
    } else {
        reduction.result.integers = false;
        err = emit_sum(node, reduction.marked, mean ? 1 / (float)reduction.elements : 1,
                       &reduction.result);
    }
    if (!err)
        node->graph->values[node->out].is_sum = true;
    return err;
}
