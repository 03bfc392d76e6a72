// check_export.h - finds what PyTorch's newer exporter left out of an ONNX file, by the list of the
// module's tensors that the exporter wrote there.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/profile/job.h"

// Adds a line to diag for each of these:
// - Parameters or running statistics of the module have no tensor in the file.
// - Parameters of the module are trained only as tensors that the exporter made of them.
// - The module updates running statistics, and a job with this train.bn (use) does not.
// - train.bn is set, but the model has no batch normalization.
// Reads no weights.
void cn_check_export(const struct cn_onnx *onnx, enum cn_batch_norm_use use, struct cn_diag *diag);

// Returns whether the file lists the module's parameters and has all of them.
bool cn_check_export_is_whole(const struct cn_onnx *onnx);
