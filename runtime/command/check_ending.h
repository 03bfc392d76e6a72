// check_ending.h - warns of a model whose last operator is also a part of its loss.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/profile/job.h"

// Adds a line to diag when the model ends in Softmax and the loss is cross-entropy, or in Sigmoid
// and the loss is binary cross-entropy: the operator would be applied twice. With loss NULL, adds a
// line in both cases.
void cn_check_ending(const struct cn_onnx *onnx, const enum cn_loss *loss, struct cn_diag *diag);
