// check_weights.h - warns of changes that an exporter made to a model's weights.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/onnx/onnx.h"

// Adds a line to diag for each of these:
// - Weights have names that an exporter made up.
// - The newer exporter made copies of weights, which are then trained apart.
// - Several weights of equal values were merged, and are then trained as one.
// - Weights have infinite or very large numbers, as masks do.
void cn_check_weights(const struct cn_onnx *onnx, const struct cn_layout *layout,
                      struct cn_diag *diag);

// Adds a line to diag when tensors that will be trained have names that parameters seldom have:
// they may be buffers of the module. Leaves out frozen tensors. Adds no line for a file that says
// which tensors are parameters.
void cn_check_names(const struct cn_onnx *onnx, const struct cn_layout *layout,
                    struct cn_diag *diag);
