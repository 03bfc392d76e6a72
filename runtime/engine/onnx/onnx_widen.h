// onnx_widen.h - turns a model in other floats into one in float32.
//
// Such files come from modules after .half() or .double(). Tensors, constants, inputs, outputs and
// Casts of float16, bfloat16 or float64 become float32. float16 and bfloat16 keep their exact
// values. float64 is rounded; numbers that are too large become infinity. Everything else in the
// file stays byte for byte.
#pragma once

#include "runtime/base/bytes.h"

// Returns the bytes of one element in raw data, for a type that can be widened; 0 for other types.
size_t cn_onnx_widen_element_size(int32_t type);

// Writes the changed file to out. out stays empty when there is nothing to widen, or when the file
// is malformed; then cn_onnx_open reports where.
cn_err cn_onnx_widen(const uint8_t *file, size_t size, struct cn_buffer *out);
