// convolution.h - convolutions and their gradients: those of 1 x 1 as products (pointwise.h),
// others by cuDNN if it is installed and supports the call, else by the port's kernels.
//
// A plan is found when the engine asks for the workspace, and is kept until the device closes. Only
// deterministic plans are used, and with float32 only those that do not round the factors. With 16
// bits, tensors are packed as n x plane x channels; otherwise they stay n x channels x plane.
#pragma once

#include "ports/cuda/device.h"

// Finds a plan and sets *workspace to the words that CONV, CONV_GRAD_INPUT or CONV_GRAD_WEIGHT
// needs. CN_ENOMEM.
cn_err cuda_conv_query(struct cuda *cuda, const struct cn_call *call, uint32_t samples,
                       size_t *workspace);

// Queues one of these calls.
cn_err cuda_conv_run(struct cuda *cuda, struct cuda_args *args);

// Frees all plans.
void cuda_conv_release(struct cuda *cuda);
