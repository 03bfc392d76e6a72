// pointwise.h - convolutions of 1 x 1 as matrix products by cuBLASLt.
//
// Such a convolution multiplies, for each sample, the weight (channels_out x channels_in) and x
// (channels_in x plane). No tensor is packed, whatever the precision. With a stride, the places of
// x that are used are copied beside each other first.
#pragma once

#include "ports/cuda/device.h"

// Returns whether the convolution and its gradients are done as products.
bool cuda_pointwise_fits(const struct cuda *cuda, const struct cn_window *w);

// Returns the words of workspace that CONV, CONV_GRAD_INPUT or CONV_GRAD_WEIGHT needs.
size_t cuda_pointwise_words(const struct cuda *cuda, enum cn_op op, const struct cn_window *w,
                            uint32_t samples);

// Queues one of these calls, without the bias and ReLU of CONV. CN_ENOTSUP when the library turns
// the product down; the result is then not written.
cn_err cuda_pointwise_run(struct cuda *cuda, const struct cuda_args *args);
