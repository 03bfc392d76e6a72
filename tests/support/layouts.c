#include "tests/support/layouts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/random.h"

struct cn_layout cn_test_layout(const struct cn_test_tensor *tensors, size_t count)
{
    struct cn_layout layout = {.tensor_count = count};

    layout.tensors = calloc(count + 1, sizeof(*layout.tensors));
    assert(layout.tensors);
    for (size_t t = 0; t < count; t++) {
        char name[32];
        struct cn_tensor_info *tensor = &layout.tensors[t];

        snprintf(name, sizeof(name), "t%zu", t);
        tensor->name = malloc(sizeof(name));
        assert(tensor->name);
        snprintf(tensor->name, sizeof(name), "%s", name);
        tensor->class = tensors[t].class;
        tensor->rank = 1;
        tensor->dims[0] = tensors[t].count;
        tensor->offset = layout.total;
        tensor->count = tensors[t].count;
        layout.total += tensors[t].count;
    }
    return layout;
}

void cn_test_layout_free(struct cn_layout *layout)
{
    for (size_t t = 0; t < layout->tensor_count; t++)
        free(layout->tensors[t].name);
    free(layout->tensors);
    *layout = (struct cn_layout){0};
}

// Sums twelve uniform numbers from three blocks, which is close to a normal distribution.
static float bell(uint64_t seed, uint64_t index)
{
    float sum = -6;

    for (uint64_t part = 0; part < 3; part++) {
        uint32_t numbers[4];

        cn_random_block(seed, index, part, numbers);
        for (int i = 0; i < 4; i++)
            sum += (float)(numbers[i] >> 8) / 16777216.0f;
    }
    return sum;
}

void cn_test_fill(float *values, size_t count, uint64_t seed, float width)
{
    for (size_t i = 0; i < count; i++)
        values[i] = width * bell(seed, i);
}

void cn_test_fill_tailed(float *values, size_t count, uint64_t seed, float width)
{
    for (size_t i = 0; i < count; i++) {
        float x = bell(seed, i);

        values[i] = width * x * x * x / 8;
    }
}
