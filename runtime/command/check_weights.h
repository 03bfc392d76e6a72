// check_weights.h - what an exporter made of a model's weights that its author may not expect.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/onnx/onnx.h"

// Adds a line where weights have names that an exporter made up, one where the newer exporter made
// copies of some, which are trained apart, and one where several were merged, which are trained as
// one. Infinite and very large numbers, as masks have, are a line of their own.
void cn_check_weights(const struct cn_onnx *onnx, const struct cn_layout *layout,
                      struct cn_diag *diag);

// Adds a line where tensors that will be trained have names that parameters seldom have, as buffers
// of a module do. A file that says what is a parameter needs none, nor does a tensor that is
// frozen.
void cn_check_names(const struct cn_onnx *onnx, const struct cn_layout *layout,
                    struct cn_diag *diag);
