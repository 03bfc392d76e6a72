// convolution.h - convolutions and their gradients: cuDNN where it is there and can, else the
// port's kernels.
//
// A plan is found when the engine asks for the workspace, and kept until the device closes. Only
// plans that repeat to the bit are taken, and with float32 only those that do not round the
// factors. With 16 bits, tensors are packed as n x plane x channels; float32 stays n x channels x
// plane.
#pragma once

#include "ports/cuda/device.h"

// Words of the workspace of CONV, CONV_GRAD_INPUT or CONV_GRAD_WEIGHT.
cn_err cuda_conv_query(struct cuda *cuda, const struct cn_call *call, uint32_t samples,
                       size_t *workspace);
cn_err cuda_conv_run(struct cuda *cuda, struct cuda_args *args);
void cuda_conv_release(struct cuda *cuda);
