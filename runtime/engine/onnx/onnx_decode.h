// onnx_decode.h - decodes the messages of onnx.proto into tables.
#pragma once

#include "runtime/engine/onnx/onnx_walk.h"

// Fills the tables of onnx. Its file must be set and its other members zero. After an error the
// tables hold what was read so far, and cn_onnx_close releases them.
cn_err cn_onnx_decode(struct cn_onnx *onnx, struct cn_diag *diag);

// Decodes a TensorProto. For an unsupported type or external data it sets decoder->unsupported,
// adds a line to diag and returns CN_OK.
cn_err cn_onnx_decode_tensor(struct cn_onnx_decoder *decoder, struct cn_wire message,
                             struct cn_onnx_tensor *tensor);
