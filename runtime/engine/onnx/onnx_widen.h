// onnx_widen.h - a model in other floats as one in float32.
//
// What training.half() and .double() export: tensors, constants, inputs, outputs and Casts of
// float16, bfloat16 or float64 become float32. float16 and bfloat16 lose nothing by that; float64
// is rounded, to infinity what is too large. Everything else of the file stays byte for byte.
#pragma once

#include "runtime/base/bytes.h"

// Bytes of one element that can be widened, in raw data; 0 for other types.
size_t cn_onnx_widen_element_size(int32_t type);

// Writes the file to out, which stays empty where there is nothing to widen, or where the bytes are
// malformed: the decoder says where.
cn_err cn_onnx_widen(const uint8_t *file, size_t size, struct cn_buffer *out);
