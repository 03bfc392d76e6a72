// layouts.h - invented models for tests: layouts, and rows of values.
#pragma once

#include "runtime/engine/layout.h"

struct cn_test_tensor {
    size_t count;
    enum cn_tensor_class class;
};

// Makes a layout of tensors "t0", "t1" and so on. A lack of memory ends the test. Free it with
// cn_test_layout_free.
struct cn_layout cn_test_layout(const struct cn_test_tensor *tensors, size_t count);
void cn_test_layout_free(struct cn_layout *layout);

// Fill values with repeatable numbers like those of a weight change: from a bell curve of the given
// width, or from a distribution with long tails.
void cn_test_fill(float *values, size_t count, uint64_t seed, float width);
void cn_test_fill_tailed(float *values, size_t count, uint64_t seed, float width);
