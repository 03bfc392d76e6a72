// check_weights.h - warns of changes that an exporter made to a model's weights.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/onnx/onnx.h"

// Adds a line for each of these:
// - Weights have names that an exporter made up.
// - The newer exporter made copies of weights, which are then trained apart.
// - Several weights were merged, and are then trained as one.
// - Weights have infinite or very large numbers, as masks do.
void cn_check_weights(const struct cn_onnx *onnx, const struct cn_layout *layout,
                      struct cn_diag *diag);

// Adds a line when tensors that will be trained have names that parameters seldom have: they may be
// buffers of the module. Adds none for a file that says which tensors are parameters, and none for
// a frozen tensor.
void cn_check_names(const struct cn_onnx *onnx, const struct cn_layout *layout,
                    struct cn_diag *diag);
