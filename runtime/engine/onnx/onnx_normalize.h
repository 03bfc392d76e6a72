// onnx_normalize.h - puts the normalization of a model's first input into the model.
//
// The changed file subtracts a mean from the input and multiplies the difference by a factor before
// any other node reads it. So whoever runs the model gives it values as they are: boards that
// train, the gateway that measures, and an application.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/engine/onnx/onnx.h"

// What is done to the values of a sample: (value - mean) * factor. Both arrays have a number for
// each element of dims, which is broadcast to a sample from the last dimension on.
struct cn_normalization {
    uint32_t rank; // at most CN_ONNX_RANK_MAX - 1
    uint64_t dims[CN_ONNX_RANK_MAX];
    const float *mean, *factor;
};

// Returns whether a model was changed so.
bool cn_onnx_is_normalized(const struct cn_onnx *onnx);

// Writes the changed file to out. CN_ENOTSUP with a line in diag for a model whose first input is
// not float32, is not read, has fewer dimensions than dims, or is normalized so already; CN_ERANGE
// when the file becomes too large; CN_ENOMEM.
cn_err cn_onnx_normalize(const struct cn_onnx *onnx, const struct cn_normalization *normalization,
                         struct cn_diag *diag, struct cn_buffer *out);
