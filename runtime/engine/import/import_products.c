// Products of matrices: all samples times one weight, or each sample's own matrices.
#include <inttypes.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

// Returns whether the product can add this bias itself: one number for each column.
static bool is_row(const struct cn_value *value, uint64_t cols)
{
    if (!cn_graph_is_shared(value) || value->batched || value->transposed || value->words != cols)
        return false;
    return value->rank == 1 || (value->rank == 2 && value->dims[0] == 1);
}

// Adds a bias that the product cannot add itself.
static cn_err add_bias(struct cn_import_node *node, float scale)
{
    const struct cn_map map = {.kind = CN_MAP_SCALE, .alpha = scale};
    uint32_t bias = node->in[2];
    cn_err err = CN_OK;

    if (scale != 1)
        err = cn_import_emit_map(node, map, bias, &bias);
    return err ? err : cn_import_emit_combine(node, CN_COMBINE_ADD, node->out, bias, &node->out);
}

// Emits input 0, of any rank, times a matrix that all samples share; with input 2 as bias.
static cn_err emit_matmul(struct cn_import_node *node, struct cn_matmul op)
{
    struct cn_value a = *cn_import_value(node, 0), b = *cn_import_value(node, 1), result = a;
    struct cn_node product = cn_graph_node(CN_OP_MATMUL);
    uint32_t last = a.rank - 1;
    bool bias = cn_import_has(node, 2), row;
    cn_err err;

    op.inner = a.dims[last];
    op.rows = a.words / op.inner;
    op.cols = b.dims[op.transpose_b ? 0 : 1];
    if (b.dims[op.transpose_b ? 1 : 0] != op.inner)
        return cn_import_refuse(node, "%zu columns times %" PRIu64 " rows", op.inner,
                                b.dims[op.transpose_b ? 1 : 0]);
    // The memory of a transposed view holds rows and columns the other way round.
    op.transpose_b ^= b.transposed;
    row = bias && is_row(cn_import_value(node, 2), op.cols);
    err = cn_import_as_floats(node, node->in[0], &product.in[0]);
    if (!err)
        err = cn_import_as_floats(node, node->in[1], &product.in[1]);
    if (!err && row)
        err = cn_import_as_floats(node, node->in[2], &product.in[2]);
    result.dims[last] = op.cols;
    result.integers = false;
    if (!err)
        err = cn_import_add(node, &result, &node->out);
    product.call.matmul = op;
    product.out[0] = node->out;
    if (!err)
        err = cn_graph_add_node(node->graph, &product);
    return !err && bias && !row ? add_bias(node, op.bias_scale) : err;
}

// Returns whether a plain product can take the matrix as its second operand.
static bool is_shared_matrix(const struct cn_value *value)
{
    return value->rank == 2 && !value->batched;
}

// Returns whether the batch is not in the columns of a.
static bool has_plain_columns(const struct cn_value *value)
{
    return value->rank >= 2 && (!value->batched || value->batch_axis + 1 < value->rank);
}

// Exchanges the rows and columns of an operand of rank 2.
static cn_err exchange(struct cn_import_node *node, size_t input)
{
    struct cn_import_node transpose = *node;
    cn_err err;

    transpose.in[0] = node->in[input];
    err = cn_import_exchange(&transpose);
    node->in[input] = transpose.out;
    return err;
}

cn_err cn_import_gemm(struct cn_import_node *node)
{
    struct cn_matmul op = {.alpha = cn_import_float(node, "alpha", 1),
                           .bias_scale = cn_import_float(node, "beta", 1),
                           .transpose_b = cn_import_int(node, "transB", 0) != 0};
    cn_err err = cn_import_refuse_size(node);

    if (err)
        return err;
    if (cn_import_value(node, 0)->rank != 2 || cn_import_value(node, 1)->rank != 2)
        return cn_import_refuse(node, "the operands must be matrices");
    if (cn_import_int(node, "transA", 0))
        err = exchange(node, 0);
    if (!err && cn_import_value(node, 0)->transposed)
        err = cn_import_materialise(node, 0);
    if (err)
        return err;
    if (!has_plain_columns(cn_import_value(node, 0)) || !is_shared_matrix(cn_import_value(node, 1)))
        return cn_import_refuse(node,
                                "the samples must be rows of A, and B must not depend on them");
    return emit_matmul(node, op);
}

// Fills in the dims of the result, and checks that the operands fit.
static cn_err products_dims(struct cn_import_node *node, struct cn_value in[2],
                            struct cn_value *result)
{
    uint32_t batch_dims[2] = {node->in[0], node->in[1]};
    struct cn_value outer[2];
    cn_err err = CN_OK;

    // The leading dims follow NumPy; they are compared as values without the matrices.
    for (int i = 0; !err && i < 2; i++) {
        if (in[i].rank < 2 || (in[i].batched && in[i].batch_axis + 2 >= in[i].rank))
            return cn_import_refuse(node, "the batch must be before the last two dimensions");
        outer[i] = in[i];
        outer[i].dims[in[i].rank - 2] = outer[i].dims[in[i].rank - 1] = 1;
        outer[i].root = CN_GRAPH_NONE;
        err = cn_graph_add_value(node->graph, &outer[i], &batch_dims[i]);
    }
    if (!err)
        err = cn_import_broadcast(node, batch_dims, 2, result);
    if (err)
        return err;
    result->dims[result->rank - 2] = in[0].dims[in[0].rank - 2];
    result->dims[result->rank - 1] = in[1].dims[in[1].rank - 1];
    if (in[0].dims[in[0].rank - 1] != in[1].dims[in[1].rank - 2])
        return cn_import_refuse(node, "%" PRIu64 " columns times %" PRIu64 " rows",
                                in[0].dims[in[0].rank - 1], in[1].dims[in[1].rank - 2]);
    return CN_OK;
}

// Joins the leading dims of a sample into one. Returns false when an operand repeats along only
// some of them.
static bool fold_matrices(const struct cn_graph *graph, const struct cn_value in[2],
                          const struct cn_value *result, struct cn_products *op)
{
    size_t strides[2][CN_GRAPH_RANK_MAX], *to[2] = {&op->stride_a, &op->stride_b};
    uint64_t dims[CN_GRAPH_RANK_MAX];

    cn_graph_sample_dims(graph, result, dims);
    for (int i = 0; i < 2; i++)
        cn_import_broadcast_strides(graph, &in[i], result, strides[i]);
    op->count = 1;
    for (uint32_t d = result->rank - 2; d-- > 0;) {
        if (dims[d] == 1)
            continue;
        for (int i = 0; i < 2; i++) {
            if (op->count == 1)
                *to[i] = strides[i][d];
            else if (strides[i][d] != *to[i] * op->count)
                return false;
        }
        op->count *= dims[d];
    }
    return true;
}

// Repeats an operand in memory, so that it has one matrix for each matrix of the result.
static cn_err repeat_operand(struct cn_import_node *node, int input, const struct cn_value *result)
{
    struct cn_import_node expand = *node;
    struct cn_value x = *cn_import_value(node, (size_t)input), whole = *result;
    cn_err err;

    whole.dims[whole.rank - 2] = x.dims[x.rank - 2];
    whole.dims[whole.rank - 1] = x.dims[x.rank - 1];
    if (!x.batched && whole.batched)
        whole.dims[whole.batch_axis] /= node->graph->batch;
    whole.batched = x.batched;
    whole.shared = x.shared;
    expand.in[0] = node->in[input];
    err = cn_import_expand_to(&expand, &whole);
    node->in[input] = expand.out;
    return err;
}

static cn_err emit_products(struct cn_import_node *node)
{
    struct cn_value in[2] = {*cn_import_value(node, 0), *cn_import_value(node, 1)}, result = {0};
    struct cn_node call = cn_graph_node(CN_OP_PRODUCTS);
    struct cn_products *op = &call.call.products;
    cn_err err = products_dims(node, in, &result);

    if (err)
        return err;
    op->alpha = 1;
    op->rows = result.dims[result.rank - 2];
    op->cols = result.dims[result.rank - 1];
    op->inner = in[0].dims[in[0].rank - 1];
    op->leading_a = op->inner;
    op->leading_b = op->leading_c = op->cols;
    op->stride_c = op->rows * op->cols;
    if (!fold_matrices(node->graph, in, &result, op)) {
        for (int i = 0; !err && i < 2; i++) {
            err = repeat_operand(node, i, &result);
            in[i] = *cn_import_value(node, (size_t)i);
        }
        if (err)
            return err;
        if (!fold_matrices(node->graph, in, &result, op))
            return cn_import_refuse(node, "the leading dimensions do not fit");
    }
    for (size_t i = 0; !err && i < 2; i++)
        err = cn_import_as_floats(node, node->in[i], &call.in[i]);
    if (!err)
        err = cn_import_add(node, &result, &node->out);
    call.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &call);
}

// Treats a vector as a matrix of one row (a) or one column (b). The result lacks that dimension.
static cn_err as_matrix(struct cn_import_node *node, size_t input)
{
    struct cn_value value = *cn_import_value(node, input);

    if (value.rank != 1)
        return CN_OK;
    if (value.batched)
        return cn_import_refuse(node, "the batch must be before the last two dimensions");
    value.rank = 2;
    value.dims[1] = input ? 1 : value.dims[0];
    value.dims[0] = input ? value.dims[0] : 1;
    return cn_graph_add_value(node->graph, &value, &node->in[input]);
}

static cn_err drop_dim(struct cn_import_node *node, uint32_t dim)
{
    struct cn_value value = node->graph->values[node->out];

    memmove(value.dims + dim, value.dims + dim + 1, (value.rank - 1 - dim) * sizeof(*value.dims));
    value.rank--;
    if (value.batched && value.batch_axis > dim)
        value.batch_axis--;
    return cn_graph_add_value(node->graph, &value, &node->out);
}

cn_err cn_import_matmul(struct cn_import_node *node)
{
    bool row = cn_import_value(node, 0)->rank == 1, col = cn_import_value(node, 1)->rank == 1;
    cn_err err = cn_import_refuse_size(node);

    if (!err)
        err = as_matrix(node, 0);
    if (!err)
        err = as_matrix(node, 1);
    if (err)
        return err;
    if (!cn_import_value(node, 0)->rank || !cn_import_value(node, 1)->rank)
        return cn_import_refuse(node, "the operands must be matrices");
    if (cn_import_value(node, 0)->transposed)
        err = cn_import_materialise(node, 0);
    if (!err && has_plain_columns(cn_import_value(node, 0)) &&
        is_shared_matrix(cn_import_value(node, 1))) {
        err = emit_matmul(node, (struct cn_matmul){.alpha = 1, .bias_scale = 1});
    } else if (!err) {
        if (cn_import_value(node, 1)->transposed)
            err = cn_import_materialise(node, 1);
        if (!err)
            err = emit_products(node);
    }
    if (!err && col)
        err = drop_dim(node, node->graph->values[node->out].rank - 1);
    if (!err && row)
        err = drop_dim(node, node->graph->values[node->out].rank - (col ? 1 : 2));
    return err;
}
