// onnx_inference.h - what training asks of a model's nodes, taken out of its file.
//
// An export for training has BatchNormalization that uses the batch's statistics and Dropout that
// drops values, and any runtime does that. For inference BatchNormalization loses training_mode and
// its outputs but the first, Dropout its input training_mode, also in branches
// (https://onnx.ai/onnx/operators/onnx__BatchNormalization.html, onnx__Dropout.html). Statistics
// that something else of the file reads keep their node as it is.
#pragma once

#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_edit.h"

// Adds the edits that make the file one for inference: none where it is one.
cn_err cn_onnx_inference(const struct cn_onnx *onnx, struct cn_onnx_edits *edits);

// A node that draws random numbers for inference too, NULL for none.
const struct cn_onnx_node *cn_onnx_inference_random(const struct cn_onnx *onnx);
