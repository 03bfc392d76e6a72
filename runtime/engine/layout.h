// layout.h - the tensors of a model as one flat row of float32.
//
// The order is that of the initializers in the ONNX file ("graph order"). Boards and aggregator
// derive it from the same file, so sizes of everything that travels are known before a byte
// arrives.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

enum cn_tensor_class {
    CN_TENSOR_PARAM, // trained
    CN_TENSOR_STAT,  // a running statistic (BatchNorm): averaged, never by gradient
};

struct cn_tensor_info {
    char *name; // owned by the layout
    enum cn_tensor_class class;
    uint32_t rank;
    uint64_t dims[8];
    size_t offset; // of the first element, in elements, from the start of the row
    size_t count;  // elements
    bool frozen;   // not trained in this run; set by the trainer
    bool variance; // a running variance: no version holds a negative one
    // Set by runtime/update/tensor_rules.h, for encoders.
    double density; // top-k: share of its own; 0: it competes with the others
    int priority;   // top-k: a value counts as 2^priority times as large
};

struct cn_layout {
    struct cn_tensor_info *tensors;
    size_t tensor_count;
    size_t total; // elements of all tensors
};

void cn_layout_deinit(struct cn_layout *layout);

// Deep copy.
cn_err cn_layout_copy(const struct cn_layout *layout, struct cn_layout *copy);
