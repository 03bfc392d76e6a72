#include "aggregator/merge/fold.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/merge/fixed_point.h"

struct cn_fold {
    const struct cn_layout *layout; // borrowed
    struct cn_fold_caps caps;
    uint64_t weight; // sum of the weights
    double cut;      // norm of the last update if it was scaled down, otherwise 0
    int64_t sums[];
};

struct addition {
    int64_t *sums;
    const struct cn_layout *layout;
    const float *base;        // NULL: variances have no limit
    int64_t weight;           // factor of statistics
    int64_t trained;          // factor of trained values
    uint64_t factor;          // F, in units of 2^-32; at most 2^32
    unsigned __int128 square; // S, the sum of the squares of fix
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

// Returns the weight of the values from offset on, which are of one tensor.
static int64_t weight_at(const struct addition *addition, size_t offset)
{
    const struct cn_layout *layout = addition->layout;

    for (size_t t = 0; addition->weight != addition->trained && t < layout->tensor_count; t++)
        if (offset < layout->tensors[t].offset + layout->tensors[t].count)
            return layout->tensors[t].class == CN_TENSOR_PARAM ? addition->trained
                                                               : addition->weight;
    return addition->weight;
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
                addition->sums[i] += (least - change) * addition->weight;
        }
    }
}

static cn_err add_whole(void *context, size_t offset, const float *values, size_t count)
{
    const struct addition *addition = context;
    int64_t *sums = addition->sums + offset;
    int64_t weight = weight_at(addition, offset);

    for (size_t i = 0; i < count; i++)
        sums[i] += cn_fixed_of(values[i]) * weight;
    limit_variances(addition, offset, values, count, CN_FIXED_ONE);
    return CN_OK;
}

// Statistics are never sparse, so none of these is a variance.
static void add_few_whole(void *context, size_t offset, const uint16_t *index, const float *values,
                          size_t count)
{
    const struct addition *addition = context;
    int64_t *sums = addition->sums + offset;
    int64_t weight = addition->trained;

    for (size_t i = 0; i < count; i++)
        sums[index[i]] += cn_fixed_of(values[i]) * weight;
}

static cn_err add_and_square(void *context, size_t offset, const float *values, size_t count)
{
    struct addition *addition = context;

    for (size_t i = 0; i < count; i++) {
        int64_t fixed = cn_fixed_of(values[i]);

        addition->square += (uint64_t)(fixed * fixed); // at most 2^62
    }
    return add_whole(context, offset, values, count);
}

static void add_few_and_square(void *context, size_t offset, const uint16_t *index,
                               const float *values, size_t count)
{
    struct addition *addition = context;

    for (size_t i = 0; i < count; i++) {
        int64_t fixed = cn_fixed_of(values[i]);

        addition->square += (uint64_t)(fixed * fixed);
    }
    add_few_whole(context, offset, index, values, count);
}

static cn_err square_only(void *context, size_t offset, const float *values, size_t count)
{
    struct addition *addition = context;

    (void)offset;
    for (size_t i = 0; i < count; i++) {
        int64_t fixed = cn_fixed_of(values[i]);

        addition->square += (uint64_t)(fixed * fixed);
    }
    return CN_OK;
}

static void square_few(void *context, size_t offset, const uint16_t *index, const float *values,
                       size_t count)
{
    (void)index;
    cn_err err = square_only(context, offset, values, count);
    (void)err; // it cannot fail
}

cn_err cn_fold_norm(const struct cn_layout *layout, const uint8_t *frame, size_t size,
                    uint64_t *norm)
{
    struct addition addition = {0};
    const struct cn_update_sink sink = {square_only, square_few, &addition};
    cn_err err = cn_update_decode_few(frame, size, layout, &sink);

    *norm = cn_fixed_root(addition.square);
    return err;
}

static int64_t scaled(const struct addition *addition, float value, int64_t weight)
{
    return cn_fixed_scale(cn_fixed_of(value), addition->factor) * weight;
}

static cn_err add_scaled(void *context, size_t offset, const float *values, size_t count)
{
    const struct addition *addition = context;
    int64_t *sums = addition->sums + offset;
    int64_t weight = weight_at(addition, offset);

    for (size_t i = 0; i < count; i++)
        sums[i] += scaled(addition, values[i], weight);
    limit_variances(addition, offset, values, count, addition->factor);
    return CN_OK;
}

static void add_few_scaled(void *context, size_t offset, const uint16_t *index, const float *values,
                           size_t count)
{
    const struct addition *addition = context;
    int64_t *sums = addition->sums + offset;

    for (size_t i = 0; i < count; i++)
        sums[index[i]] += scaled(addition, values[i], addition->trained);
}

// Subtracts what the same frame added. Decoding stops where it stopped before, and whole numbers
// are restored exactly.
static void take_back(struct cn_fold *fold, const uint8_t *frame, size_t size,
                      struct addition *addition)
{
    const struct cn_update_sink sink = {add_whole, add_few_whole, addition};
    cn_err err;

    addition->weight = -addition->weight;
    addition->trained = -addition->trained;
    err = cn_update_decode_few(frame, size, fold->layout, &sink);
    addition->weight = -addition->weight;
    addition->trained = -addition->trained;
    (void)err; // the error that adding it returned
}

// Adds while it checks, and takes the frame back if needed: hardly any update is refused or has too
// large a norm.
static cn_err add_frame(struct cn_fold *fold, const uint8_t *frame, size_t size,
                        struct addition *addition, struct cn_diag *diag)
{
    uint64_t norm_max = cn_fixed_limit(fold->caps.max_norm, fold->caps.norm_max);
    const struct cn_update_sink sink = {norm_max ? add_and_square : add_whole,
                                        norm_max ? add_few_and_square : add_few_whole, addition};
    const struct cn_update_sink scaling = {add_scaled, add_few_scaled, addition};
    struct cn_update_header header;
    cn_err err = cn_update_check_few(frame, size, fold->layout, diag, &header, &sink);

    if (!err && (header.snapshot || header.rounded)) {
        cn_diag_add(diag,
                    "update: a snapshot or a rounded version, expected a change of the weights");
        err = CN_EFORMAT;
    }
    addition->factor = cn_fixed_factor(norm_max, cn_fixed_root(addition->square));
    if (err || addition->factor != CN_FIXED_ONE)
        take_back(fold, frame, size, addition);
    if (err || addition->factor == CN_FIXED_ONE)
        return err;
    return cn_update_decode_few(frame, size, fold->layout, &scaling);
}

cn_err cn_fold_add_trained(struct cn_fold *fold, const uint8_t *frame, size_t size, uint64_t weight,
                           uint64_t trained, struct cn_diag *diag)
{
    struct addition addition = {
        .sums = fold->sums, .layout = fold->layout, .base = fold->caps.base};
    cn_err err;

    if (fold->caps.max_weight && weight > fold->caps.max_weight)
        weight = fold->caps.max_weight;
    if (weight < 1 || weight > CN_UPDATE_WEIGHT_MAX - fold->weight) {
        cn_diag_add(diag, "update: a weight of %" PRIu64 " samples, expected 1 to %" PRIu64, weight,
                    CN_UPDATE_WEIGHT_MAX - fold->weight);
        return CN_ERANGE;
    }
    addition.weight = (int64_t)weight;
    addition.trained = (int64_t)(trained < weight ? trained : weight);
    err = add_frame(fold, frame, size, &addition, diag);
    if (err)
        return err;
    fold->weight += weight;
    fold->cut =
        addition.factor == CN_FIXED_ONE ? 0 : ldexp(sqrt((double)addition.square), -CN_FIXED_BITS);
    return CN_OK;
}

cn_err cn_fold_add(struct cn_fold *fold, const uint8_t *frame, size_t size, uint64_t weight,
                   struct cn_diag *diag)
{
    return cn_fold_add_trained(fold, frame, size, weight, weight, diag);
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
