// check_ending.h - whether a model ends in what its loss contains.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/profile/job.h"

// Adds a line when the model ends in Softmax under cross-entropy or in Sigmoid under binary
// cross-entropy: it would be applied twice. Without a loss (NULL) both endings are told of.
void cn_check_ending(const struct cn_onnx *onnx, const enum cn_loss *loss, struct cn_diag *diag);
