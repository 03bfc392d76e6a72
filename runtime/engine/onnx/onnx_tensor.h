// onnx_tensor.h - finds the numbers of a tensor in the file.
#pragma once

#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_wire.h"

// Fields of TensorProto that hold numbers.
#define CN_ONNX_FLOAT_DATA 4
#define CN_ONNX_INT32_DATA 5
#define CN_ONNX_INT64_DATA 7
#define CN_ONNX_RAW_DATA 9

// Returns the bytes of one element in raw data; 0 for an unsupported type.
size_t cn_onnx_tensor_element_size(int32_t type);

// Returns the next run of bytes in the file that holds floats of a tensor, in order: one for raw
// data, otherwise one for each field. Start with *rest = {data, data + size}. Returns false after
// the last run.
bool cn_onnx_tensor_run(const struct cn_onnx_tensor *tensor, struct cn_wire *rest,
                        struct cn_wire *run);

// Returns the initializer that a tensor of a layout was made from. NULL when this file has none of
// its name with the same count of floats.
const struct cn_onnx_tensor *cn_onnx_tensor_of(const struct cn_onnx *onnx,
                                               const struct cn_tensor_info *info);
