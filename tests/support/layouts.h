// layouts.h - made-up models for tests: layouts and rows of values.
#pragma once

#include "runtime/engine/layout.h"

struct cn_test_tensor {
    size_t count;
    enum cn_tensor_class class;
};

// A layout of tensors "t0", "t1" and so on; the tests' memory never runs out. Freed by
// cn_test_layout_free.
struct cn_layout cn_test_layout(const struct cn_test_tensor *tensors, size_t count);
void cn_test_layout_free(struct cn_layout *layout);

// Repeatable values like those of a change: a bell curve of the given width, or one with long
// tails.
void cn_test_fill(float *values, size_t count, uint64_t seed, float width);
void cn_test_fill_tailed(float *values, size_t count, uint64_t seed, float width);
