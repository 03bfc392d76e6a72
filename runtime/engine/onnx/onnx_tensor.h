// onnx_tensor.h - where the numbers of a tensor lie in the file.
#pragma once

#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_wire.h"

// Fields of TensorProto that hold numbers.
#define CN_ONNX_FLOAT_DATA 4
#define CN_ONNX_INT32_DATA 5
#define CN_ONNX_INT64_DATA 7
#define CN_ONNX_RAW_DATA 9

// Bytes of one element in raw data, 0 for a type that is not supported.
size_t cn_onnx_tensor_element_size(int32_t type);

// The stretches of the file that hold the floats of a tensor, in order: one for raw data, otherwise
// one for each field. Start with *rest = {data, data + size}; false after the last one.
bool cn_onnx_tensor_run(const struct cn_onnx_tensor *tensor, struct cn_wire *rest,
                        struct cn_wire *run);

// The initializer that a tensor of a layout was made from. NULL when it is not in this file with
// the same count of floats.
const struct cn_onnx_tensor *cn_onnx_tensor_of(const struct cn_onnx *onnx,
                                               const struct cn_tensor_info *info);
