#include "runtime/update/residual.h"

#include <string.h>

#include "runtime/port/scratch.h"
#include "runtime/update/update_block.h"

// Encodes a clipped copy of the values. Values above the limit are rare; only then a copy is made.
static cn_err encode_clipped(const struct cn_update_header *header, const struct cn_layout *layout,
                             const float *change, float *next, struct cn_buffer *out)
{
    float *clipped = cn_scratch_allocate(layout->total * sizeof(*clipped));
    cn_err err;

    if (!clipped)
        return CN_ENOMEM;
    for (size_t i = 0; i < layout->total; i++)
        clipped[i] = cn_update_clip(change[i]);
    err = cn_update_encode(header, layout, clipped, next, out);
    cn_scratch_free(clipped);
    for (size_t i = 0; i < layout->total && !err; i++)
        next[i] = change[i] - next[i];
    return err;
}

// Adds residual to change. Returns the bits of the largest magnitude; NaN counts as the largest.
static uint32_t add_residual(float *change, const float *residual, size_t count)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < count; i++) {
        float sum = residual ? change[i] + residual[i] : change[i];
        uint32_t magnitude = cn_update_bits(sum) & 0x7fffffffu;

        change[i] = sum;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

cn_err cn_residual_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                          float *change, const float *residual, float *next, struct cn_buffer *out)
{
    uint32_t largest = add_residual(change, residual, layout->total);

    if (largest <= cn_update_bits(CN_UPDATE_VALUE_MAX))
        return cn_update_encode_all(header, layout, change, true, next, out);
    return encode_clipped(header, layout, change, next, out);
}
