// update_select.c - which coordinates top-k sends: the largest of the whole model.
//
// Magnitudes are compared by their codes, in one histogram instead of a sort; equal codes are taken
// in the order of their index. A tensor that would get less than a tenth of its share is raised to
// that, so that biases and norms are not starved beside large matrices.
#include "runtime/update/update_block.h"

#include <stdlib.h>

// Two rows, used in turns, so that a run of equal values does not wait for its own last count.
struct histogram {
    uint32_t even[CN_UPDATE_CODE_COUNT];
    uint32_t odd[CN_UPDATE_CODE_COUNT];
};

static void histogram_add(struct histogram *histogram, const float *values, size_t count)
{
    size_t i = 0;

    for (; i + 2 <= count; i += 2) {
        histogram->even[cn_update_code(values[i])]++;
        histogram->odd[cn_update_code(values[i + 1])]++;
    }
    if (i < count)
        histogram->even[cn_update_code(values[i])]++;
}

// The k largest, or all that are not zero when there are fewer.
static struct cn_update_pick pick_largest(const struct histogram *histogram, size_t k)
{
    struct cn_update_pick pick = {.code = CN_UPDATE_CODE_MAX + 1};

    for (uint32_t code = CN_UPDATE_CODE_MAX; code >= CN_UPDATE_CODE_MIN && k > 0; code--) {
        size_t here = (size_t)histogram->even[code] + histogram->odd[code];

        pick.code = code;
        pick.ties = here < k ? here : k;
        k -= pick.ties;
    }
    return pick;
}

// The share of count that density asks for, rounded up; at least 1.
static size_t share(double density, size_t count)
{
    double exact = density * (double)count;
    size_t whole = (size_t)exact;

    return (double)whole < exact ? whole + 1 : whole;
}

// Hands out the ties of the whole model in the order of tensors, then raises the poor.
static void pick_for_tensor(const struct cn_update_rule *rule, const float *values, size_t count,
                            const struct cn_update_pick *model, size_t *ties_left,
                            struct histogram *histogram, struct cn_update_pick *pick)
{
    size_t floor = (share(rule->density, count) + 9) / 10;
    size_t above = 0;
    size_t equal = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t code = cn_update_code(values[i]);

        above += code > model->code;
        equal += code == model->code;
    }
    pick->code = model->code;
    pick->ties = equal < *ties_left ? equal : *ties_left;
    *ties_left -= pick->ties;
    if (above + pick->ties >= floor)
        return;
    memset(histogram, 0, sizeof(*histogram));
    histogram_add(histogram, values, count);
    *pick = pick_largest(histogram, floor);
}

cn_err cn_update_select(const struct cn_update_header *header, const struct cn_layout *layout,
                        const float *values, struct cn_update_pick *picks)
{
    struct histogram *histogram = calloc(1, sizeof(*histogram));
    const struct cn_update_rule *rule = &header->rule;
    struct cn_update_pick model;
    size_t candidates = 0;
    size_t ties_left;

    if (!histogram)
        return CN_ENOMEM;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (cn_update_kind_of(header, tensor) != CN_UPDATE_KIND_SPARSE)
            continue;
        histogram_add(histogram, values + tensor->offset, tensor->count);
        candidates += tensor->count;
    }
    model = pick_largest(histogram, share(rule->density, candidates));
    ties_left = model.ties;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (cn_update_kind_of(header, tensor) == CN_UPDATE_KIND_SPARSE)
            pick_for_tensor(rule, values + tensor->offset, tensor->count, &model, &ties_left,
                            histogram, &picks[t]);
    }
    free(histogram);
    return CN_OK;
}
