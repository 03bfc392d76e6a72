// onnx_decode.h - the messages of onnx.proto as tables.
#pragma once

#include "runtime/engine/onnx/onnx_walk.h"

// Fills the tables of onnx, whose file is set and whose other members are zero. After an error the
// tables hold what was read so far and cn_onnx_close releases them.
cn_err cn_onnx_decode(struct cn_onnx *onnx, struct cn_diag *diag);

// A tensor of an unsupported type or place sets decoder->unsupported, adds a line and is CN_OK.
cn_err cn_onnx_decode_tensor(struct cn_onnx_decoder *decoder, struct cn_wire message,
                             struct cn_onnx_tensor *tensor);
