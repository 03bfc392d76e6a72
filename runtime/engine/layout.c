#include "runtime/engine/layout.h"

#include <stdlib.h>
#include <string.h>

void cn_layout_deinit(struct cn_layout *layout)
{
    if (!layout)
        return;
    for (size_t i = 0; i < layout->tensor_count; i++)
        free(layout->tensors[i].name);
    free(layout->tensors);
    *layout = (struct cn_layout){0};
}

cn_err cn_layout_copy(const struct cn_layout *layout, struct cn_layout *copy)
{
    *copy = (struct cn_layout){.total = layout->total};
    if (!layout->tensor_count)
        return CN_OK;
    copy->tensors = calloc(layout->tensor_count, sizeof(*copy->tensors));
    if (!copy->tensors)
        return CN_ENOMEM;
    for (size_t i = 0; i < layout->tensor_count; i++) {
        copy->tensors[i] = layout->tensors[i];
        copy->tensors[i].name = strdup(layout->tensors[i].name);
        copy->tensor_count++;
        if (!copy->tensors[i].name) {
            cn_layout_deinit(copy);
            return CN_ENOMEM;
        }
    }
    return CN_OK;
}
