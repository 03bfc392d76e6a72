// update_select.c - which coordinates top-k sends: the largest of the whole model.
//
// Magnitudes are compared by their codes, with a histogram instead of a sort. Equal codes are taken
// in the order of their index. A tensor that would send less than a tenth of its share sends that
// tenth, so that tensors with small changes are not starved by those with large ones.
#include "runtime/update/update_block.h"

#include <stdlib.h>

// Two rows of counts, used in turn, so that equal neighbours do not wait for each other's
// increment.
struct histogram {
    uint32_t even[CN_UPDATE_CODE_COUNT];
    uint32_t odd[CN_UPDATE_CODE_COUNT];
};

// Returns the code that a code counts as in a tensor with this priority; 0 for zero.
static uint32_t weighted(uint32_t code, int priority)
{
    int moved = (int)code + CN_UPDATE_CODES_OCTAVE * priority;

    return code < CN_UPDATE_CODE_MIN || moved < (int)CN_UPDATE_CODE_MIN ? 0 : (uint32_t)moved;
}

static void histogram_add_weighted(struct histogram *histogram, const float *values, size_t count,
                                   int priority)
{
    for (size_t i = 0; i < count; i++)
        histogram->even[weighted(cn_update_code(values[i]), priority)]++;
}

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

// Returns the pick of the k largest codes, or of all codes that are not zero when they are fewer.
static struct cn_update_pick pick_largest(const struct histogram *histogram, size_t k)
{
    struct cn_update_pick pick = {.code = CN_UPDATE_CODE_COUNT};

    for (uint32_t code = CN_UPDATE_CODE_COUNT - 1; code >= CN_UPDATE_CODE_MIN && k > 0; code--) {
        size_t here = (size_t)histogram->even[code] + histogram->odd[code];

        pick.code = code;
        pick.ties = here < k ? here : k;
        k -= pick.ties;
    }
    return pick;
}

// Returns density * count, rounded up; at least 1 for a count above 0.
static size_t share(double density, size_t count)
{
    double exact = density * (double)count;
    size_t whole = (size_t)exact;

    return (double)whole < exact ? whole + 1 : whole;
}

// Returns the pick of the k largest values of one tensor.
static struct cn_update_pick pick_of_tensor(const float *values, size_t count, size_t k,
                                            struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram_add(histogram, values, count);
    return pick_largest(histogram, k);
}

// Converts the model's threshold to codes of a tensor with this priority. Returns the code below
// CN_UPDATE_CODE_MIN when all of the tensor's nonzero values are above the threshold.
static uint32_t own_code(uint32_t code, int priority)
{
    int own = (int)code - CN_UPDATE_CODES_OCTAVE * priority;

    return own < (int)CN_UPDATE_CODE_MIN ? CN_UPDATE_CODE_MIN - 1 : (uint32_t)own;
}

// Gives the tensor its part of the model's ties, in the order of tensors. Then raises the tensor to
// a tenth of its share if it would send less.
static void pick_for_tensor(const struct cn_update_rule *rule, const struct cn_tensor_info *tensor,
                            const float *values, const struct cn_update_pick *model,
                            size_t *ties_left, struct histogram *histogram,
                            struct cn_update_pick *pick)
{
    size_t floor = (share(rule->density, tensor->count) + 9) / 10;
    size_t above = 0;
    size_t equal = 0;

    pick->code = own_code(model->code, tensor->priority);
    for (size_t i = 0; i < tensor->count; i++) {
        uint32_t code = cn_update_code(values[i]);

        above += code > pick->code;
        equal += code == pick->code;
    }
    if (pick->code < CN_UPDATE_CODE_MIN)
        equal = 0;
    pick->ties = equal < *ties_left ? equal : *ties_left;
    *ties_left -= pick->ties;
    if (above + pick->ties < floor)
        *pick = pick_of_tensor(values, tensor->count, floor, histogram);
}

// Returns true for tensors that share the density of the model.
static bool competes(const struct cn_update_header *header, const struct cn_tensor_info *tensor)
{
    return cn_update_kind_of(header, tensor) == CN_UPDATE_KIND_SPARSE && !(tensor->density > 0);
}

static struct cn_update_pick pick_of_model(const struct cn_update_header *header,
                                           const struct cn_layout *layout, const float *values,
                                           struct histogram *histogram)
{
    size_t candidates = 0;

    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (!competes(header, tensor))
            continue;
        if (tensor->priority)
            histogram_add_weighted(histogram, values + tensor->offset, tensor->count,
                                   tensor->priority);
        else
            histogram_add(histogram, values + tensor->offset, tensor->count);
        candidates += tensor->count;
    }
    return pick_largest(histogram, share(header->rule.density, candidates));
}

cn_err cn_update_select(const struct cn_update_header *header, const struct cn_layout *layout,
                        const float *values, struct cn_update_pick *picks)
{
    struct histogram *histogram = calloc(1, sizeof(*histogram));
    struct cn_update_pick model;
    size_t ties_left;

    if (!histogram)
        return CN_ENOMEM;
    model = pick_of_model(header, layout, values, histogram);
    ties_left = model.ties;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];
        const float *own = values + tensor->offset;

        if (competes(header, tensor))
            pick_for_tensor(&header->rule, tensor, own, &model, &ties_left, histogram, &picks[t]);
        else if (cn_update_kind_of(header, tensor) == CN_UPDATE_KIND_SPARSE)
            picks[t] = pick_of_tensor(own, tensor->count, share(tensor->density, tensor->count),
                                      histogram);
    }
    free(histogram);
    return CN_OK;
}
