// onnx_reads.h - what the nodes of a model read its initializers as.
#pragma once

#include "runtime/engine/onnx/onnx.h"

enum {
    CN_ONNX_READ_STATISTIC = 1,   // a running mean or variance
    CN_ONNX_READ_FIRST_STATE = 2, // of a recurrent layer
    CN_ONNX_READ_SIZE = 4,        // regions or scales of Resize
    CN_ONNX_READ_VARIANCE = 8,    // a running variance
};

// Sets reads[i] for initializer i to all that nodes read it as, themselves or by way of Identity
// nodes, which exporters write where two tensors hold the same. Nodes in branches count, whatever
// the condition. CN_ENOMEM.
cn_err cn_onnx_reads(const struct cn_onnx *onnx, uint8_t *reads);
