// onnx_decode.h - the messages of onnx.proto as tables.
#pragma once

#include "runtime/engine/onnx.h"

// Fills the tables of onnx, whose file is set and whose other members are zero. After an error the
// tables hold what was read so far and cn_onnx_close releases them.
cn_err cn_onnx_decode(struct cn_onnx *onnx, struct cn_diag *diag);
