#include "aggregator/merge/strategy.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

// Makes the same sum as cn_update_apply before that changes anything.
static cn_err check_sum(void *context, size_t offset, const float *values, size_t count)
{
    const float *base = (const float *)context + offset;

    for (size_t i = 0; i < count; i++) {
        float sum = base[i] + values[i];

        if (!(sum >= -FLT_MAX && sum <= FLT_MAX))
            return CN_EDIVERGED;
    }
    return CN_OK;
}

static float largest(const float *values, size_t count)
{
    float most = 0;

    for (size_t i = 0; i < count; i++) {
        float magnitude = values[i] < 0 ? -values[i] : values[i];

        most = magnitude > most ? magnitude : most;
    }
    return most;
}

bool cn_strategy_may_round(const struct cn_layout *layout, const float *base, const float *step,
                           const float *residual)
{
    size_t count = layout->total;

    // The decoded step may be a little larger than the encoded one.
    return largest(base, count) + largest(step, count) + largest(residual, count) <=
           CN_UPDATE_VALUE_MAX - 1;
}

// Rounding leaves out a part of the version. That part joins the residual, like what encoding
// leaves out of the step.
static cn_err apply_rounded(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                            const float *step, float *weights, float *next)
{
    size_t row = layout->total * sizeof(*weights);
    float *base = malloc(row + 1);
    cn_err err;

    if (!base)
        return CN_ENOMEM;
    memcpy(base, weights, row);
    err = cn_update_apply(frame, size, layout, weights);
    if (err)
        memcpy(weights, base, row);
    for (size_t i = 0; i < layout->total && !err; i++)
        next[i] = step[i] - (weights[i] - base[i]);
    free(base);
    return err;
}

// Adds what the frame decodes to.
static cn_err apply(const struct cn_update_header *header, const uint8_t *frame, size_t size,
                    const struct cn_layout *layout, const float *base, const float *step,
                    float *weights, float *next)
{
    cn_err err = cn_update_decode(frame, size, layout, check_sum, (void *)base);

    if (err)
        return err;
    memmove(weights, base, layout->total * sizeof(*weights));
    return header->rounded ? apply_rounded(frame, size, layout, step, weights, next)
                           : cn_update_apply(frame, size, layout, weights);
}

cn_err cn_strategy_publish(const struct cn_update_header *header, const struct cn_layout *layout,
                           const float *base, float *step, const float *residual, float *weights,
                           float *next, struct cn_buffer *out)
{
    size_t start = out->size;
    cn_err err = cn_residual_encode(header, layout, step, residual, next, out);

    if (!err)
        err =
            apply(header, out->data + start, out->size - start, layout, base, step, weights, next);
    if (err)
        out->size = start;
    return err;
}
