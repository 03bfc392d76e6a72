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

struct cn_tensor_info { // a tensor's place in the row
    char *name;         // owned by the layout
    enum cn_tensor_class class;
    uint32_t rank;
    uint64_t dims[8];
    size_t offset; // elements in the row before the tensor
    size_t count;  // elements of the tensor
    bool frozen;   // not trained in this run; set by the trainer
    bool no_decay; // weight decay leaves it alone; set by the trainer
    bool variance; // a running variance: no version holds a negative one
    // Set by runtime/update/tensor_rules.h, for both ends of an update.
    bool local; // each group keeps its own values
    bool stays; // no update has the tensor: it is local by its name, or frozen and known to all
    bool signs; // a small tensor that travels as signs where large ones are sparse or signs
    // Set by runtime/update/tensor_rules.h, for encoders.
    double density; // top-k: share of the tensor's values that is sent; 0: they compete with others
    int priority;   // top-k: the tensor's values count as 2^priority times as large
};

struct cn_layout {
    struct cn_tensor_info *tensors;
    size_t tensor_count;
    size_t total; // elements of all tensors: the length of the row
};

// Frees what the layout owns. Accepts NULL and zeros.
void cn_layout_deinit(struct cn_layout *layout);

// Makes copy a deep copy of layout; the caller deinits it. CN_ENOMEM; deinit is not needed then.
cn_err cn_layout_copy(const struct cn_layout *layout, struct cn_layout *copy);
