// onnx_split.h - gives each normalization its own tensors.
//
// PyTorch's newer exporter keeps one initializer of several that are equal. A new
// BatchNormalization has a scale and a variance of ones, a shift and a mean of zeros: two tensors
// for four roles. But a tensor is a weight or a statistic, never both. So the mean and the variance
// of such a node get a copy, named as PyTorch does. The shift gets one where the scale is the same
// tensor.
#pragma once

#include "runtime/base/bytes.h"

// Writes the changed file to out. out stays empty when there is nothing to split, or when the file
// is malformed; then cn_onnx_open reports why.
cn_err cn_onnx_split(const uint8_t *file, size_t size, struct cn_buffer *out);
