#include "runtime/engine/program/apply.h"

#include <stdlib.h>

// A gradient and the tensor that it changes.
struct part {
    size_t weights, gradients, count;
    float momentum; // momentum of a statistic; 0 for a trained tensor
    bool no_decay;
};

static int compare_parts(const void *a, const void *b)
{
    const struct part *first = a, *second = b;

    return (first->weights > second->weights) - (first->weights < second->weights);
}

// Says whether weight decay leaves alone the tensor that begins at this word of the row.
static bool is_spared(const struct cn_layout *layout, size_t offset)
{
    for (size_t i = 0; i < layout->tensor_count; i++)
        if (layout->tensors[i].offset == offset)
            return layout->tensors[i].no_decay;
    return false;
}

static size_t find_parts(const struct cn_graph *graph, const struct cn_layout *layout,
                         struct part *parts)
{
    size_t count = 0, kept = 0;

    for (size_t i = 0; i < graph->value_count; i++) {
        const struct cn_value *value = &graph->values[i];

        if (value->kind == CN_VALUE_GRADIENT && value->root == i)
            parts[count++] = (struct part){.weights = value->parameter,
                                           .gradients = value->offset,
                                           .count = value->words,
                                           .momentum = value->momentum,
                                           .no_decay = is_spared(layout, value->parameter)};
    }
    qsort(parts, count, sizeof(*parts), compare_parts);
    for (size_t i = 0; i < count; i++) {
        struct part *last = &parts[kept ? kept - 1 : 0];

        if (kept && last->weights + last->count == parts[i].weights &&
            last->gradients + last->count == parts[i].gradients &&
            !(last->momentum < parts[i].momentum) && !(last->momentum > parts[i].momentum) &&
            last->no_decay == parts[i].no_decay)
            last->count += parts[i].count;
        else
            parts[kept++] = parts[i];
    }
    return kept;
}

static struct cn_call call_of(enum cn_op op, const struct part *part,
                              const struct cn_range *numbers)
{
    struct cn_call call = {.op = op, .range = *numbers};

    call.range.weights = part->weights;
    call.range.gradients = part->gradients;
    call.range.count = part->count;
    call.range.no_decay = part->no_decay;
    return call;
}

cn_err cn_apply_build(const struct cn_graph *graph, const struct cn_apply_rule *rule,
                      struct cn_call **calls, size_t *count)
{
    struct part *parts = calloc(graph->value_count + 1, sizeof(*parts));
    size_t kept = parts ? find_parts(graph, rule->layout, parts) : 0;
    struct cn_call *made = calloc(2 * kept + 1, sizeof(*made));
    size_t n = 0;

    if (!parts || !made) {
        free(parts);
        free(made);
        return CN_ENOMEM;
    }
    made[n++].op = CN_OP_CHECK;
    for (size_t i = 0; rule->clip && i < kept; i++)
        if (!(parts[i].momentum > 0))
            made[n++] = call_of(CN_OP_CLIP, &parts[i], &rule->numbers);
    for (size_t i = 0; i < kept; i++) {
        struct cn_range statistic = {.momentum = parts[i].momentum};

        made[n++] = parts[i].momentum > 0 ? call_of(CN_OP_STATISTIC, &parts[i], &statistic)
                                          : call_of(rule->op, &parts[i], &rule->numbers);
    }
    free(parts);
    *calls = made;
    *count = n;
    return CN_OK;
}
