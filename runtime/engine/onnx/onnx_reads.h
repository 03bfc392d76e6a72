// onnx_reads.h - finds the special roles in which nodes read initializers.
#pragma once

#include "runtime/engine/onnx/onnx.h"

enum {
    CN_ONNX_READ_STATISTIC = 1,   // a running mean or variance
    CN_ONNX_READ_FIRST_STATE = 2, // the first state of a recurrent layer
    CN_ONNX_READ_KNOWN = 4,       // an operand that must be known before training
    CN_ONNX_READ_VARIANCE = 8,    // a running variance
};

// Sets reads[i] to all roles in which nodes read initializer i, directly or through Identity nodes,
// which exporters write where two tensors are equal. Nodes in branches count, whatever the
// condition. reads has room for all initializers. CN_ENOMEM.
cn_err cn_onnx_reads(const struct cn_onnx *onnx, uint8_t *reads);
