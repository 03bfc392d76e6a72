// Square roots, and norms, which are computed from them.
#include "runtime/engine/import/import_emit.h"

static const struct cn_map square_root = {.kind = CN_MAP_SQRT};

// Adds the root of in, with a gradient of 0 where the root is 0.
static cn_err emit_norm(struct cn_import_node *node, struct cn_map root, uint32_t in, uint32_t *out)
{
    const struct cn_value like = {0};
    const float numbers[] = {0, 1};
    uint32_t zero, one, empty, result;
    cn_err err = cn_import_add_known(node, &like, NULL, &numbers[0], &zero);

    if (!err)
        err = cn_import_add_known(node, &like, NULL, &numbers[1], &one);
    if (!err)
        err = cn_import_emit_combine(node, CN_COMBINE_EQUAL, in, zero, &empty);
    if (!err)
        err = cn_import_emit_where(node, empty, one, in, &result);
    if (!err)
        err = cn_import_emit_map(node, root, result, &result);
    return err ? err : cn_import_emit_where(node, empty, zero, result, out);
}

// The root of a sum gets a gradient of 0 where the sum is 0. Exporters write PyTorch's norm and std
// as such a root, and their gradient is 0 there. For other operands it is infinite there, as in
// PyTorch.
cn_err cn_import_sqrt(struct cn_import_node *node)
{
    return cn_import_value(node, 0)->is_sum
               ? emit_norm(node, square_root, node->in[0], &node->out)
               : cn_import_emit_map(node, square_root, node->in[0], &node->out);
}

// A power between 0 and 1 is treated as a root.
cn_err cn_import_pow(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0), *power = cn_import_value(node, 1);
    struct cn_map root = {.kind = CN_MAP_POWER};

    if (x->is_sum && cn_import_is_known(power) && power->words == 1 && power->rank <= x->rank)
        root.alpha = (float)cn_import_known_float(node->graph, power, 0);
    if (root.alpha > 0 && root.alpha < 1)
        return emit_norm(node, root, node->in[0], &node->out);
    return cn_import_arithmetic(node);
}

// ReduceL1, ReduceL2 and ReduceSumSquare: a sum of absolute values or of squares.
cn_err cn_import_reduce_norm(struct cn_import_node *node)
{
    const struct cn_map absolute = {.kind = CN_MAP_ABS};
    const struct cn_map square = {.kind = CN_MAP_POWER, .alpha = 2};
    bool is_l1 = cn_text_equal(node->node->op, "ReduceL1");
    cn_err err = cn_import_emit_map(node, is_l1 ? absolute : square, node->in[0], &node->in[0]);

    if (!err)
        err = cn_import_reduce(node);
    if (err || !cn_text_equal(node->node->op, "ReduceL2"))
        return err;
    return emit_norm(node, square_root, node->out, &node->out);
}
