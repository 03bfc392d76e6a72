// The numbers of the samples, 0, 1, 2 ... along the batch: a model counts them to pick something out
// of each sample, as x[torch.arange(len(x)), i] does.
//
// Such a value is what it would be for sample 0, the base, and a step from each sample to the next.
// What moves it on works on the base; a Gather of the rows of the samples one after the other is one
// within each sample where the step is a sample's rows.
#include "runtime/engine/import_emit.h"

cn_err cn_import_number_samples(struct cn_import_node *node)
{
    struct cn_value value = {.rank = 1, .dims = {node->graph->batch}, .batched = true, .shared = true};
    const int64_t zero = 0;
    cn_err err = cn_import_add_known(node, &value, &zero, NULL, &value.base);

    value.kind = CN_VALUE_NUMBERED;
    value.step = 1;
    value.root = CN_GRAPH_NONE;
    return err ? err : cn_graph_add_value(node->graph, &value, &node->out);
}

// The result of the op on the base is the new one.
static cn_err move_on(struct cn_import_node *node, int64_t step)
{
    struct cn_value value;
    cn_err err = cn_import_op_find(node->node)->import(node);

    if (err)
        return err;
    value = node->graph->values[node->out];
    if (!value.batched)
        return cn_import_refuse(node, "the numbers of the samples lose the batch");
    value.kind = CN_VALUE_NUMBERED;
    value.base = node->out;
    value.step = step;
    value.root = CN_GRAPH_NONE;
    return cn_graph_add_value(node->graph, &value, &node->out);
}

// The step of a sum, a difference or a product with one known number; false for what has none.
static bool find_step(const struct cn_import_node *node, const int64_t steps[2], int64_t *step)
{
    const struct cn_text op = node->node->op;
    int factor = steps[0] ? 1 : 0;

    if (cn_text_equal(op, "Add"))
        return !__builtin_add_overflow(steps[0], steps[1], step);
    if (cn_text_equal(op, "Sub"))
        return !__builtin_sub_overflow(steps[0], steps[1], step);
    if (!cn_text_equal(op, "Mul") || steps[factor])
        return false;
    return cn_import_is_known(cn_import_value(node, (size_t)factor)) &&
           cn_import_value(node, (size_t)factor)->words == 1 &&
           !__builtin_mul_overflow(
               steps[!factor],
               cn_import_known_int(node->graph, cn_import_value(node, (size_t)factor), 0), step);
}

static bool keeps_step(const struct cn_import_node *node)
{
    static const char *const ops[] = {"Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand"};
    int64_t to = cn_import_int(node, "to", CN_ONNX_INT64);

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (cn_text_equal(node->node->op, ops[i]))
            return true;
    return cn_text_equal(node->node->op, "Cast") && (to == CN_ONNX_INT64 || to == CN_ONNX_INT32);
}

cn_err cn_import_of_numbered(struct cn_import_node *node)
{
    int64_t steps[2] = {0}, step;

    for (size_t i = 0; i < node->in_count && i < 2; i++)
        if (cn_import_has(node, i) && cn_import_value(node, i)->kind == CN_VALUE_NUMBERED) {
            steps[i] = cn_import_value(node, i)->step;
            node->in[i] = cn_import_value(node, i)->base;
        }
    if (cn_text_equal(node->node->op, "Gather") && !steps[0])
        return cn_import_gather_rows(node, steps[1]);
    if (cn_text_equal(node->node->op, "Shape"))
        return cn_import_shape_of(node);
    if (keeps_step(node) && !steps[1])
        return move_on(node, steps[0]);
    if (node->in_count == 2 && find_step(node, steps, &step))
        return move_on(node, step);
    return cn_import_refuse(node, "the numbers of the samples can only pick out of each sample");
}
