#include "aggregator/strategy.h"

#include <float.h>
#include <string.h>

static void step_fedavg(float *mean, size_t count, float *state)
{
    (void)mean;
    (void)count;
    (void)state;
}

static const struct cn_strategy strategies[] = {
    {.name = "fedavg", .state_count = 0, .step = step_fedavg},
};

cn_err cn_strategy_find(const char *name, const struct cn_strategy **strategy)
{
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        if (strcmp(strategies[i].name, name) != 0)
            continue;
        *strategy = &strategies[i];
        return CN_OK;
    }
    return CN_ENOTFOUND;
}

// The same sum as in cn_update_apply, seen before it is made.
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

cn_err cn_strategy_publish(const struct cn_update_header *header, const struct cn_layout *layout,
                           const float *base, float *step, const float *residual, float *weights,
                           float *next, struct cn_buffer *out)
{
    size_t start = out->size;
    cn_err err = cn_residual_encode(header, layout, step, residual, next, out);

    if (err)
        return err;
    err = cn_update_decode(out->data + start, out->size - start, layout, check_sum, (void *)base);
    if (err) {
        out->size = start;
        return err;
    }
    memmove(weights, base, layout->total * sizeof(*weights));
    return cn_update_apply(out->data + start, out->size - start, layout, weights);
}
