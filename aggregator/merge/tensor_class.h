// tensor_class.h - which coordinates of a row are running statistics.
#pragma once

#include "runtime/engine/layout.h"

// Returns whether the coordinate at offset, which is below layout->total, is one of a statistic.
// Sets *end to the end of its tensor.
static inline bool cn_tensor_is_statistic(const struct cn_layout *layout, size_t offset,
                                          size_t *end)
{
    size_t t = 0;

    while (offset >= layout->tensors[t].offset + layout->tensors[t].count)
        t++;
    *end = layout->tensors[t].offset + layout->tensors[t].count;
    return layout->tensors[t].class != CN_TENSOR_PARAM;
}

static inline bool cn_tensor_has_statistics(const struct cn_layout *layout)
{
    for (size_t t = 0; t < layout->tensor_count; t++)
        if (layout->tensors[t].class != CN_TENSOR_PARAM)
            return true;
    return false;
}
