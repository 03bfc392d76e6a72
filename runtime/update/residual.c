#include "runtime/update/residual.h"

#include <float.h>

static float clip(float value)
{
    // A value that is not finite stays so: the encoder reports it.
    if (value > CN_UPDATE_VALUE_MAX && value <= FLT_MAX)
        return CN_UPDATE_VALUE_MAX;
    return value < -CN_UPDATE_VALUE_MAX && value >= -FLT_MAX ? -CN_UPDATE_VALUE_MAX : value;
}

cn_err cn_residual_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                          float *change, const float *residual, float *next, struct cn_buffer *out)
{
    cn_err err;

    for (size_t i = 0; i < layout->total; i++)
        change[i] = clip(change[i] + residual[i]);
    err = cn_update_encode(header, layout, change, next, out);
    if (err)
        return err;
    for (size_t i = 0; i < layout->total; i++)
        next[i] = change[i] - next[i];
    return CN_OK;
}
