#include "runtime/update/residual.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static float clip(float value)
{
    // A value that is not finite stays so: the encoder reports it.
    if (value > CN_UPDATE_VALUE_MAX && value <= FLT_MAX)
        return CN_UPDATE_VALUE_MAX;
    return value < -CN_UPDATE_VALUE_MAX && value >= -FLT_MAX ? -CN_UPDATE_VALUE_MAX : value;
}

// Encodes a clipped copy. Values that large are rare, so the copy is made only for them.
static cn_err encode_clipped(const struct cn_update_header *header, const struct cn_layout *layout,
                             const float *values, float *decoded, struct cn_buffer *out)
{
    float *clipped = malloc((layout->total + 1) * sizeof(*clipped));
    cn_err err;

    if (!clipped)
        return CN_ENOMEM;
    for (size_t i = 0; i < layout->total; i++)
        clipped[i] = clip(values[i]);
    err = cn_update_encode(header, layout, clipped, decoded, out);
    free(clipped);
    return err;
}

cn_err cn_residual_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                          float *change, const float *residual, float *next, struct cn_buffer *out)
{
    bool fits = true;
    cn_err err;

    for (size_t i = 0; i < layout->total; i++) {
        change[i] += residual[i];
        fits &= change[i] >= -CN_UPDATE_VALUE_MAX && change[i] <= CN_UPDATE_VALUE_MAX;
    }
    if (fits)
        err = cn_update_encode(header, layout, change, next, out);
    else
        err = encode_clipped(header, layout, change, next, out);
    if (err)
        return err;
    for (size_t i = 0; i < layout->total; i++)
        next[i] = change[i] - next[i];
    return CN_OK;
}
