#include "aggregator/merge/fold.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/merge/fixed_point.h"
#include "aggregator/merge/tensor_class.h"

struct cn_fold {
    const struct cn_layout *layout; // borrowed
    struct cn_fold_caps caps;
    uint64_t weight; // sum of the weights
    double cut;      // norm of the last update if it was scaled down, otherwise 0
    int64_t sums[];
};

enum part { TRAINED, STATISTICS, PARTS };

struct addition {
    int64_t *sums;
    const struct cn_layout *layout;
    bool mixed;                      // whether the layout has statistics
    const float *base;               // NULL: variances have no limit
    int64_t weight[PARTS];           // by which values are multiplied
    uint64_t factor[PARTS];          // F, in units of 2^-32; at most 2^32
    unsigned __int128 square[PARTS]; // S, the sum of the squares of fix
};

cn_err cn_fold_open(const struct cn_layout *layout, const struct cn_fold_caps *caps,
                    struct cn_fold **fold)
{
    size_t size;
    struct cn_fold *made;

    assert(caps->max_norm >= 0);
    if (cn_size_multiply(layout->total, sizeof(made->sums[0]), &size) ||
        size > SIZE_MAX - sizeof(*made))
        return CN_ERANGE;
    made = calloc(1, sizeof(*made) + size);
    if (!made)
        return CN_ENOMEM;
    made->layout = layout;
    made->caps = *caps;
    *fold = made;
    return CN_OK;
}

void cn_fold_close(struct cn_fold *fold)
{
    free(fold);
}

// Returns the part of the values from offset on, which are of one tensor.
static enum part part_at(const struct addition *addition, size_t offset)
{
    size_t end;

    return addition->mixed && cn_tensor_is_statistic(addition->layout, offset, &end) ? STATISTICS
                                                                                     : TRAINED;
}

// Call after values were added times factor. Adds back what was taken from the variances among
// [offset, offset + count) beyond their values.
static void limit_variances(const struct addition *addition, size_t offset, const float *values,
                            size_t count, uint64_t factor)
{
    const struct cn_layout *layout = addition->layout;

    for (size_t t = 0; addition->base && t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];
        size_t first = tensor->offset > offset ? tensor->offset : offset;
        size_t end = tensor->offset + tensor->count;

        if (!tensor->variance)
            continue;
        if (end > offset + count)
            end = offset + count;
        for (size_t i = first; i < end; i++) {
            int64_t change = cn_fixed_scale(cn_fixed_of(values[i - offset]), factor);
            int64_t least = cn_fixed_least_change(addition->base[i]);

            if (change < least)
                addition->sums[i] += (least - change) * addition->weight[STATISTICS];
        }
    }
}

static cn_err add_whole(void *context, size_t offset, const float *values, size_t count)
{
    const struct addition *addition = context;
    int64_t *sums = addition->sums + offset;
    int64_t weight = addition->weight[part_at(addition, offset)];

    for (size_t i = 0; i < count; i++)
        sums[i] += cn_fixed_of(values[i]) * weight;
    limit_variances(addition, offset, values, count, CN_FIXED_ONE);
    return CN_OK;
}

// Statistics are never sparse, so these are trained values.
static void add_few_whole(void *context, size_t offset, const uint16_t *index, const float *values,
                          size_t count)
{
    const struct addition *addition = context;
    int64_t *sums = addition->sums + offset;
    int64_t weight = addition->weight[TRAINED];

    for (size_t i = 0; i < count; i++)
        sums[index[i]] += cn_fixed_of(values[i]) * weight;
}

static void add_squares(unsigned __int128 *square, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t fixed = cn_fixed_of(values[i]);

        *square += (uint64_t)(fixed * fixed); // at most 2^62
    }
}

static cn_err square_only(void *context, size_t offset, const float *values, size_t count)
{
    struct addition *addition = context;

    add_squares(&addition->square[part_at(addition, offset)], values, count);
    return CN_OK;
}

static void square_few(void *context, size_t offset, const uint16_t *index, const float *values,
                       size_t count)
{
    struct addition *addition = context;

    (void)offset, (void)index;
    add_squares(&addition->square[TRAINED], values, count);
}

static cn_err add_and_square(void *context, size_t offset, const float *values, size_t count)
{
    cn_err err = square_only(context, offset, values, count);

    return err ? err : add_whole(context, offset, values, count);
}

static void add_few_and_square(void *context, size_t offset, const uint16_t *index,
                               const float *values, size_t count)
{
    square_few(context, offset, index, values, count);
    add_few_whole(context, offset, index, values, count);
}

cn_err cn_fold_norms(const struct cn_layout *layout, const uint8_t *frame, size_t size,
                     struct cn_fold_norms *norms)
{
    struct addition addition = {.layout = layout, .mixed = cn_tensor_has_statistics(layout)};
    const struct cn_update_sink sink = {square_only, square_few, &addition};
    cn_err err = cn_update_decode_few(frame, size, layout, &sink);

    norms->trained = cn_fixed_root(addition.square[TRAINED]);
    norms->statistics = cn_fixed_root(addition.square[STATISTICS]);
    norms->together = cn_fixed_root(addition.square[TRAINED] + addition.square[STATISTICS]);
    return err;
}

static int64_t scaled(const struct addition *addition, enum part part, float value)
{
    return cn_fixed_scale(cn_fixed_of(value), addition->factor[part]) * addition->weight[part];
}

static cn_err add_scaled(void *context, size_t offset, const float *values, size_t count)
{
    const struct addition *addition = context;
    int64_t *sums = addition->sums + offset;
    enum part part = part_at(addition, offset);

    for (size_t i = 0; i < count; i++)
        sums[i] += scaled(addition, part, values[i]);
    limit_variances(addition, offset, values, count, addition->factor[part]);
    return CN_OK;
}

static void add_few_scaled(void *context, size_t offset, const uint16_t *index, const float *values,
                           size_t count)
{
    const struct addition *addition = context;
    int64_t *sums = addition->sums + offset;

    for (size_t i = 0; i < count; i++)
        sums[index[i]] += scaled(addition, TRAINED, values[i]);
}

// Subtracts what the same frame added. Decoding stops where it stopped before, and whole numbers
// are restored exactly.
static void take_back(struct cn_fold *fold, const uint8_t *frame, size_t size,
                      struct addition *addition)
{
    const struct cn_update_sink sink = {add_whole, add_few_whole, addition};
    cn_err err;

    for (int p = 0; p < PARTS; p++)
        addition->weight[p] = -addition->weight[p];
    err = cn_update_decode_few(frame, size, fold->layout, &sink);
    for (int p = 0; p < PARTS; p++)
        addition->weight[p] = -addition->weight[p];
    (void)err; // the error that adding it returned
}

static void find_factors(const struct cn_fold *fold, bool statistics_out, struct addition *addition)
{
    uint64_t max = cn_fixed_limit(fold->caps.max_norm, fold->caps.norm_max);

    if (fold->caps.together) {
        addition->square[TRAINED] += addition->square[STATISTICS];
        addition->factor[TRAINED] = addition->factor[STATISTICS] =
            cn_fixed_factor(max, cn_fixed_root(addition->square[TRAINED]));
        return;
    }
    addition->factor[TRAINED] = cn_fixed_factor(max, cn_fixed_root(addition->square[TRAINED]));
    addition->factor[STATISTICS] =
        statistics_out ? 0
                       : cn_fixed_factor(fold->caps.statistics_max,
                                         cn_fixed_root(addition->square[STATISTICS]));
}

// Adds while it checks, and takes the frame back if needed: hardly any update is refused or has too
// large a norm.
static cn_err add_frame(struct cn_fold *fold, const uint8_t *frame, size_t size,
                        bool statistics_out, struct addition *addition, struct cn_diag *diag)
{
    bool limited =
        cn_fixed_limit(fold->caps.max_norm, fold->caps.norm_max) || fold->caps.statistics_max;
    const struct cn_update_sink sink = {limited ? add_and_square : add_whole,
                                        limited ? add_few_and_square : add_few_whole, addition};
    const struct cn_update_sink scaling = {add_scaled, add_few_scaled, addition};
    struct cn_update_header header;
    cn_err err = cn_update_check_few(frame, size, fold->layout, diag, &header, &sink);

    if (!err && (header.snapshot || header.rounded)) {
        cn_diag_add(diag,
                    "update: a snapshot or a rounded version, expected a change of the weights");
        err = CN_EFORMAT;
    }
    find_factors(fold, statistics_out, addition);
    bool whole = addition->factor[TRAINED] == CN_FIXED_ONE &&
                 (!addition->mixed || addition->factor[STATISTICS] == CN_FIXED_ONE);
    if (err || !whole)
        take_back(fold, frame, size, addition);
    if (err || whole)
        return err;
    return cn_update_decode_few(frame, size, fold->layout, &scaling);
}

cn_err cn_fold_add_share(struct cn_fold *fold, const uint8_t *frame, size_t size,
                         const struct cn_fold_share *share, struct cn_diag *diag)
{
    struct addition addition = {.sums = fold->sums,
                                .layout = fold->layout,
                                .mixed = cn_tensor_has_statistics(fold->layout),
                                .base = fold->caps.base};
    uint64_t weight = share->weight;
    cn_err err;

    if (fold->caps.max_weight && weight > fold->caps.max_weight)
        weight = fold->caps.max_weight;
    if (weight < 1 || weight > CN_UPDATE_WEIGHT_MAX - fold->weight) {
        cn_diag_add(diag, "update: a weight of %" PRIu64 " samples, expected 1 to %" PRIu64, weight,
                    CN_UPDATE_WEIGHT_MAX - fold->weight);
        return CN_ERANGE;
    }
    addition.weight[STATISTICS] = (int64_t)weight;
    addition.weight[TRAINED] = (int64_t)(share->trained < weight ? share->trained : weight);
    err = add_frame(fold, frame, size, share->statistics_out, &addition, diag);
    if (err)
        return err;
    fold->weight += weight;
    fold->cut = addition.factor[TRAINED] == CN_FIXED_ONE
                    ? 0
                    : ldexp(sqrt((double)addition.square[TRAINED]), -CN_FIXED_BITS);
    return CN_OK;
}

cn_err cn_fold_add(struct cn_fold *fold, const uint8_t *frame, size_t size, uint64_t weight,
                   struct cn_diag *diag)
{
    const struct cn_fold_share share = {.weight = weight, .trained = weight};

    return cn_fold_add_share(fold, frame, size, &share, diag);
}

double cn_fold_cut(const struct cn_fold *fold)
{
    return fold->cut;
}

uint64_t cn_fold_weight(const struct cn_fold *fold)
{
    return fold->weight;
}

cn_err cn_fold_finish(const struct cn_fold *fold, float *mean)
{
    return cn_fold_finish_by(fold, fold->weight, mean);
}

cn_err cn_fold_finish_by(const struct cn_fold *fold, uint64_t divisor, float *mean)
{
    if (fold->weight == 0)
        return CN_ENOTFOUND;
    if (divisor < fold->weight || divisor > CN_UPDATE_WEIGHT_MAX)
        return CN_ERANGE;
    for (size_t i = 0; i < fold->layout->total; i++)
        mean[i] = cn_fixed_divide(fold->sums[i], divisor);
    return CN_OK;
}
