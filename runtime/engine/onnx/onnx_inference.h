// onnx_inference.h - turns an export for training into one for inference.
//
// In an export for training BatchNormalization uses the batch's statistics and Dropout drops
// values, in any runtime. For inference BatchNormalization loses training_mode and all outputs
// except the first, and Dropout loses its input training_mode, also in branches
// (https://onnx.ai/onnx/operators/onnx__BatchNormalization.html, onnx__Dropout.html). A
// BatchNormalization whose statistics something else in the file reads is left as it is.
#pragma once

#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_edit.h"

// Adds the edits that make the file one for inference; none where it already is.
cn_err cn_onnx_inference(const struct cn_onnx *onnx, struct cn_onnx_edits *edits);

// Returns a node outside of branches that draws random numbers in inference too, or NULL.
const struct cn_onnx_node *cn_onnx_inference_random(const struct cn_onnx *onnx);
