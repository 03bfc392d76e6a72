// check_export.h - what PyTorch's newer exporter left out of a file, by the signature that is in
// it.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/profile/job.h"

// Adds a line where parameters or running statistics of the module have no tensor in the file, one
// where the module moves statistics that a job with this train.bn does not, and one where train.bn
// has no batch normalization to be for. Reads no weights.
void cn_check_export(const struct cn_onnx *onnx, enum cn_batch_norm_use use, struct cn_diag *diag);

// Whether the file says what the module's parameters were and has all of them.
bool cn_check_export_is_whole(const struct cn_onnx *onnx);
