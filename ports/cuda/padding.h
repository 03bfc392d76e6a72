// padding.h - convolutions whose padding at the two ends differs, as others with equal padding.
//
// Of cuDNN's engines some are wrong where the padding differs (engines 1 and 18 for a weight's
// gradient and 50 for an input's, in 9.19), and most do not take it. So x is copied into the
// workspace with the zeros that one of its ends has more.
#pragma once

#include "ports/cuda/device.h"

enum cuda_padding {
    CUDA_PADDING_EQUAL,
    CUDA_PADDING_LARGER, // x is to be larger
    CUDA_PADDING_OWN,    // that cannot be, or x would be more than twice as large: own kernels
};

// Returns how a convolution gets equal padding. With CUDA_PADDING_LARGER *even is the same
// convolution on the larger x.
enum cuda_padding cuda_padding_of(const struct cn_window *w, struct cn_window *even);

// Returns the words of the larger x.
size_t cuda_padding_words(const struct cn_window *even, uint32_t samples);

// Queues the copy of a call's x to `larger`, for CONV and CONV_GRAD_WEIGHT. in is x's input number.
cn_err cuda_padding_enlarge(struct cuda *cuda, const struct cuda_args *args, int in,
                            const struct cn_window *even, float *larger);

// Queues the copy of what belongs to x from `larger`, for CONV_GRAD_INPUT.
cn_err cuda_padding_cut(struct cuda *cuda, const struct cuda_args *args,
                        const struct cn_window *even, float *larger);
