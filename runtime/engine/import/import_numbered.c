// Numbered values: 0, 1, 2 ... along the batch. A model uses them to select something in each
// sample, as x[torch.arange(len(x)), i] does.
//
// A numbered value is base + step * number of the sample. Ops that move elements work on the base.
// Only sums, differences and products with one known number change the step. A Gather from the rows
// of all samples becomes a Gather within each sample if the step equals the rows of a sample. A
// GatherND by the sample's number and places within the sample also becomes one within each sample.
#include "runtime/engine/import/import_emit.h"

// Special values of a step.
#define SHAPE_ONLY INT64_MIN // only the dims are right
#define PLACES INT64_MAX     // the last dimension holds the sample's number, then the base

cn_err cn_import_number_samples(struct cn_import_node *node)
{
    struct cn_value value = {
        .rank = 1, .dims = {node->graph->batch}, .batched = true, .shared = true};
    const int64_t zero = 0;
    cn_err err = cn_import_add_known(node, &value, &zero, NULL, &value.base);

    value.kind = CN_VALUE_NUMBERED;
    value.step = 1;
    value.root = CN_GRAPH_NONE;
    return err ? err : cn_graph_add_value(node->graph, &value, &node->out);
}

static cn_err number(struct cn_import_node *node, uint32_t base, int64_t step)
{
    struct cn_value value = node->graph->values[base];

    if (!value.batched)
        return cn_import_refuse(node, "sample numbers must keep the batch dimension");
    value.kind = CN_VALUE_NUMBERED;
    value.base = base;
    value.step = step;
    value.root = CN_GRAPH_NONE;
    return cn_graph_add_value(node->graph, &value, &node->out);
}

// Applies the op to the base; its result is the new base.
static cn_err move_on(struct cn_import_node *node, int64_t step)
{
    cn_err err = cn_import_op_find(node->node)->import(node);

    return err ? err : number(node, node->out, step);
}

static bool is_number_itself(const struct cn_import_node *node, const struct cn_value *value)
{
    const struct cn_value *base = &node->graph->values[value->base];

    if (value->kind != CN_VALUE_NUMBERED || value->step != 1 || base->kind != CN_VALUE_SHAPE)
        return false;
    for (size_t i = 0; i < base->words; i++)
        if (node->graph->numbers[base->offset + i])
            return false;
    return value->rank > 1 && value->dims[value->rank - 1] == 1;
}

// Joins the sample's number and the places after it.
static cn_err join_places(struct cn_import_node *node)
{
    const struct cn_value first = *cn_import_value(node, 0);
    int64_t last = (int64_t)first.rank - 1, axis = cn_import_int(node, "axis", 0);
    uint32_t base;
    cn_err err = first.kind == CN_VALUE_NUMBERED
                     ? cn_import_work(node, node->graph->values[first.base].words)
                     : CN_OK;

    if (err)
        return err;
    if (!is_number_itself(node, &first) || node->in_count < 2 || (axis != last && axis != -1))
        return cn_import_refuse(node, "sample numbers must be the first of the indices");
    for (size_t i = 1; i < node->in_count; i++)
        if (!cn_import_has(node, i) || cn_import_value(node, i)->kind == CN_VALUE_NUMBERED)
            return cn_import_refuse(node, "sample numbers may be only the first of the indices");
    base = node->in[1];
    if (node->in_count > 2)
        err = cn_import_apply(node, "Concat", "axis", &last, 1, node->in + 1, node->in_count - 1,
                              &base);
    return err ? err : number(node, base, PLACES);
}

#define STEP_MAX ((int64_t)1 << 40)

// Finds the step of a sum, a difference or a product with one known number. Returns false for
// others.
static bool find_step(const struct cn_import_node *node, const int64_t steps[2], int64_t *step)
{
    const struct cn_text op = node->node->op;
    int factor = steps[0] ? 1 : 0;

    for (int i = 0; i < 2; i++)
        if (steps[i] == SHAPE_ONLY || steps[i] == PLACES)
            return false;
    if (cn_text_equal(op, "Add"))
        *step = steps[0] + steps[1];
    else if (cn_text_equal(op, "Sub"))
        *step = steps[0] - steps[1];
    else if (!cn_text_equal(op, "Mul") || steps[factor] ||
             !cn_import_is_known(cn_import_value(node, (size_t)factor)) ||
             cn_import_value(node, (size_t)factor)->words != 1 ||
             __builtin_mul_overflow(
                 steps[!factor],
                 cn_import_known_int(node->graph, cn_import_value(node, (size_t)factor), 0), step))
        return false;
    return *step > -STEP_MAX && *step < STEP_MAX;
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

// Imports an op that reads numbered values in its first two inputs. The inputs have been replaced
// by their bases.
static cn_err follow(struct cn_import_node *node, const int64_t steps[2])
{
    const struct cn_text op = node->node->op;
    int64_t step;

    if (steps[0] == PLACES || (steps[1] == PLACES && !cn_text_equal(op, "GatherND")))
        return cn_import_refuse(
            node, "sample numbers with indices behind them are supported in GatherND only");
    if (cn_text_equal(op, "Shape"))
        return cn_import_shape_of(node);
    if (cn_text_equal(op, "Gather") && !steps[0])
        return cn_import_gather_rows(node, steps[1]);
    if (cn_text_equal(op, "GatherND") && !steps[0] && steps[1] == PLACES)
        return cn_import_gather_places(node);
    // The newer exporter computes the dims of several operands with Max.
    if (cn_text_equal(op, "Max"))
        return move_on(node, SHAPE_ONLY);
    if (keeps_step(node) && !steps[1])
        return move_on(node, steps[0]);
    if (node->in_count == 2 && find_step(node, steps, &step))
        return move_on(node, step);
    return cn_import_refuse(node, "sample numbers can only pick values out of each sample");
}

cn_err cn_import_of_numbered(struct cn_import_node *node)
{
    int64_t steps[2] = {0};
    cn_err err = CN_OK;

    if (cn_text_equal(node->node->op, "Concat"))
        return join_places(node);
    for (size_t i = 0; !err && i < node->in_count; i++) {
        const struct cn_value *value = cn_import_has(node, i) ? cn_import_value(node, i) : NULL;

        if (!value || value->kind != CN_VALUE_NUMBERED)
            continue;
        if (i >= 2)
            return cn_import_refuse(node, "sample numbers as input %zu are not supported", i);
        steps[i] = value->step;
        node->in[i] = value->base;
        if (cn_import_value(node, i)->padded)
            err = cn_import_make_pads(node, i);
        if (!err && cn_import_value(node, i)->transposed)
            err = cn_import_materialise(node, i);
    }
    return err ? err : follow(node, steps);
}
