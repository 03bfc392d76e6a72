// update_select.c - which coordinates top-k sends: the largest of the whole model.
//
// Magnitudes are compared by their codes, with a histogram instead of a sort. Equal codes are taken
// in the order of their index. A tensor that would send less than a tenth of its share sends that
// tenth, so that tensors with small changes are not starved by those with large ones.
#include "runtime/update/update_block.h"
#include "runtime/update/update_shares.h"

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

static size_t share_of_tensor(const struct cn_tensor_info *tensor)
{
    return share(tensor->density, tensor->count);
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

// Counts the values of a tensor with a larger code than that of its pick. Returns the number of
// values with the same code; 0 for a code of zero.
static size_t count_equal(const struct cn_tensor_info *tensor, const float *values, uint32_t own,
                          size_t *above)
{
    size_t equal = 0;

    *above = 0;
    for (size_t i = 0; i < tensor->count; i++) {
        uint32_t code = cn_update_code(values[i]);

        *above += code > own;
        equal += code == own;
    }
    return own < CN_UPDATE_CODE_MIN ? 0 : equal;
}

// Gives the tensor its part of the model's ties, in the order of tensors.
static void take_ties(const struct cn_tensor_info *tensor, size_t equal,
                      const struct cn_update_pick *model, size_t *ties_left,
                      struct cn_update_pick *pick)
{
    pick->code = own_code(model->code, tensor->priority);
    pick->ties = equal < *ties_left ? equal : *ties_left;
    *ties_left -= pick->ties;
}

// Raises the tensor to a tenth of its share if it would send less.
static void raise_pick(const struct cn_update_rule *rule, const struct cn_tensor_info *tensor,
                       const float *values, size_t above, struct histogram *histogram,
                       struct cn_update_pick *pick)
{
    size_t floor = (share(rule->density, tensor->count) + 9) / 10;

    if (above + pick->ties < floor)
        *pick = pick_of_tensor(values, tensor->count, floor, histogram);
}

// Returns true for tensors that share the density of the model.
static bool competes(const struct cn_update_header *header, const struct cn_tensor_info *tensor)
{
    return cn_update_kind_of(header, tensor) == CN_UPDATE_KIND_SPARSE && !(tensor->density > 0);
}

static void count_tensor(const struct cn_tensor_info *tensor, const float *values,
                         struct histogram *histogram)
{
    if (tensor->priority)
        histogram_add_weighted(histogram, values, tensor->count, tensor->priority);
    else
        histogram_add(histogram, values, tensor->count);
}

// Returns the number of values that the model sends of those that compete.
static size_t share_of_model(const struct cn_update_header *header, const struct cn_layout *layout)
{
    size_t candidates = 0;

    for (size_t t = 0; t < layout->tensor_count; t++)
        if (competes(header, &layout->tensors[t]))
            candidates += layout->tensors[t].count;
    return share(header->rule.density, candidates);
}

cn_err cn_update_select(const struct cn_update_header *header, const struct cn_layout *layout,
                        const float *values, struct cn_update_pick *picks)
{
    struct histogram *histogram = calloc(1, sizeof(*histogram));
    struct cn_update_pick model;
    size_t ties_left;

    if (!histogram)
        return CN_ENOMEM;
    for (size_t t = 0; t < layout->tensor_count; t++)
        if (competes(header, &layout->tensors[t]))
            count_tensor(&layout->tensors[t], values + layout->tensors[t].offset, histogram);
    model = pick_largest(histogram, share_of_model(header, layout));
    ties_left = model.ties;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];
        const float *own = values + tensor->offset;

        if (competes(header, tensor)) {
            size_t above, equal;

            equal = count_equal(tensor, own, own_code(model.code, tensor->priority), &above);
            take_ties(tensor, equal, &model, &ties_left, &picks[t]);
            raise_pick(&header->rule, tensor, own, above, histogram, &picks[t]);
        } else if (cn_update_kind_of(header, tensor) == CN_UPDATE_KIND_SPARSE) {
            picks[t] = pick_of_tensor(own, tensor->count, share_of_tensor(tensor), histogram);
        }
    }
    free(histogram);
    return CN_OK;
}

// --- several members, each with some tensors ---

cn_err cn_update_select_count(const struct cn_update_share *share, const float *values,
                              int64_t codes[CN_UPDATE_CODE_COUNT])
{
    struct histogram *histogram = calloc(1, sizeof(*histogram));

    if (!histogram)
        return CN_ENOMEM;
    for (size_t t = 0; t < share->own->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &share->own->tensors[t];

        if (share->owned[t] && competes(share->header, tensor))
            count_tensor(tensor, values + tensor->offset, histogram);
    }
    for (uint32_t code = 0; code < CN_UPDATE_CODE_COUNT; code++)
        codes[code] = (int64_t)histogram->even[code] + histogram->odd[code];
    free(histogram);
    return CN_OK;
}

// Returns the pick of the model by the counts of all members.
static struct cn_update_pick pick_by_counts(const struct cn_update_share *share,
                                            const int64_t codes[CN_UPDATE_CODE_COUNT],
                                            struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
    for (uint32_t code = 0; code < CN_UPDATE_CODE_COUNT; code++)
        histogram->even[code] = (uint32_t)codes[code];
    return pick_largest(histogram, share_of_model(share->header, share->whole));
}

cn_err cn_update_select_ties(const struct cn_update_share *share, const float *values,
                             const int64_t codes[CN_UPDATE_CODE_COUNT], int64_t *equal)
{
    struct histogram *histogram = calloc(1, sizeof(*histogram));
    struct cn_update_pick model;
    size_t above;

    if (!histogram)
        return CN_ENOMEM;
    model = pick_by_counts(share, codes, histogram);
    for (size_t t = 0; t < share->own->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &share->own->tensors[t];

        if (share->owned[t] && competes(share->header, tensor))
            equal[share->places[t]] = (int64_t)count_equal(
                tensor, values + tensor->offset, own_code(model.code, tensor->priority), &above);
    }
    free(histogram);
    return CN_OK;
}

cn_err cn_update_select_own(const struct cn_update_share *share, const float *values,
                            const int64_t codes[CN_UPDATE_CODE_COUNT], const int64_t *equal,
                            struct cn_update_pick *picks)
{
    const struct cn_update_header *header = share->header;
    struct histogram *histogram = calloc(1, sizeof(*histogram));
    struct cn_update_pick model, pick;
    size_t ties_left, own = 0;

    if (!histogram)
        return CN_ENOMEM;
    model = pick_by_counts(share, codes, histogram);
    ties_left = model.ties;
    for (size_t t = 0; t < share->whole->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &share->whole->tensors[t];
        bool here = own < share->own->tensor_count && share->places[own] == t;
        const float *from = here ? values + share->own->tensors[own].offset : NULL;
        size_t above;

        pick = (struct cn_update_pick){0};
        if (competes(header, tensor)) {
            take_ties(tensor, (size_t)equal[t], &model, &ties_left, &pick);
            if (here) {
                (void)count_equal(tensor, from, pick.code, &above);
                raise_pick(&header->rule, tensor, from, above, histogram, &pick);
            }
        } else if (here && cn_update_kind_of(header, tensor) == CN_UPDATE_KIND_SPARSE) {
            pick = pick_of_tensor(from, tensor->count, share_of_tensor(tensor), histogram);
        }
        if (here)
            picks[own++] = pick;
    }
    free(histogram);
    return CN_OK;
}
