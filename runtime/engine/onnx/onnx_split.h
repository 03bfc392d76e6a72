// onnx_split.h - gives each normalization tensors of its own for what it reads.
//
// PyTorch's newer exporter keeps one initializer of several that hold the same. A new
// BatchNormalization has a scale and a variance of ones, a shift and a mean of zeros: two tensors
// for four roles. A tensor is a weight or a statistic, never both, so the mean and the variance of
// such a node get a copy, named as PyTorch does, and its shift where the scale is the same tensor.
#pragma once

#include "runtime/base/bytes.h"

// Writes the file to out, which stays empty where there is nothing to split, or where the file
// cannot be read: the decoder says why.
cn_err cn_onnx_split(const uint8_t *file, size_t size, struct cn_buffer *out);
