// kernels.h - the kernels of this port and what they are given.
//
// Every kernel takes the same argument: the call as the engine wrote it, with its operands as
// pointers of the device. What a kernel does with it is said at the kernel.
#pragma once

#include "runtime/port/compute.h"

// What kernels leave for each other and for the host; lies on the device.
struct cuda_state {
    double loss, weight; // sums since the last wait
    double squares;      // of the gradient so far, by CLIP
    double norm;         // result of CLIP
    uint64_t correct;
    uint32_t bad;      // since the last wait: a gradient was not finite
    uint32_t outside;  // since the last wait: an index or label was out of range
    uint32_t overflow; // since the last wait: float16's scale was too large
    uint32_t skip;     // in this flat program: the optimizer does nothing
    float clip;        // the factor of CLIP
    float scale;       // of the loss: a power of 2, 1 but for float16
    uint32_t steps;    // since the scale was last changed
};

// What a block of a loss kernel adds up.
struct cuda_loss_part {
    double loss, weight;
    uint64_t correct;
};

#define CUDA_LOSS_BLOCKS 128
#define CUDA_PRODUCT_THREADS 256 // of a block of products

struct cuda_args {
    struct cn_call call;
    float *in[CN_CALL_INPUTS]; // NULL when left out
    float *out[CN_CALL_OUTPUTS];
    float *workspace;
    struct cn_hyper *hyper; // of this run
    struct cuda_state *state;
    uint32_t samples;     // the largest batch: what per-sample outputs are computed for
    uint32_t parts;       // into how many pieces a sum is cut; see the kernel
    bool once;            // no operand has a stride: the work is that of one sample
    bool wide;            // a row is the work of a block, not of a warp
    bool clipped;         // the optimizer applies the factor of CLIP
    struct cn_hyper next; // begin
};

// X(name)
#define CUDA_KERNELS(X)                                                                            \
    X(begin)                                                                                       \
    X(begin_flat)                                                                                  \
    X(reset)                                                                                       \
    X(repeat)                                                                                      \
    X(clear)                                                                                       \
    X(map)                                                                                         \
    X(map_grad)                                                                                    \
    X(combine)                                                                                     \
    X(combine_grad)                                                                                \
    X(copy)                                                                                        \
    X(fill)                                                                                        \
    X(dropout)                                                                                     \
    X(extreme)                                                                                     \
    X(extreme_grad)                                                                                \
    X(bias_grad)                                                                                   \
    X(bias_grad_rows)                                                                              \
    X(sum_parts)                                                                                   \
    X(softmax)                                                                                     \
    X(softmax_grad)                                                                                \
    X(norm)                                                                                        \
    X(norm_grad)                                                                                   \
    X(norm_grad_affine)                                                                            \
    X(norm_grad_affine_rows)                                                                       \
    X(batch_norm_sums)                                                                             \
    X(batch_norm)                                                                                  \
    X(batch_norm_grad_sums)                                                                        \
    X(batch_norm_grad)                                                                             \
    X(max_pool)                                                                                    \
    X(max_pool_grad)                                                                               \
    X(average_pool)                                                                                \
    X(average_pool_grad)                                                                           \
    X(resize)                                                                                      \
    X(resize_grad)                                                                                 \
    X(gather)                                                                                      \
    X(gather_elements)                                                                             \
    X(gather_grad)                                                                                 \
    X(gather_grad_elements)                                                                        \
    X(transpose_weight)                                                                            \
    X(recurrent)                                                                                   \
    X(recurrent_grad)                                                                              \
    X(attention)                                                                                   \
    X(attention_grad_query)                                                                        \
    X(attention_grad_key)                                                                          \
    X(products)                                                                                    \
    X(bias_relu)                                                                                   \
    X(conv)                                                                                        \
    X(conv_grad_input)                                                                             \
    X(conv_grad_weight)                                                                            \
    X(pack)                                                                                        \
    X(unpack)                                                                                      \
    X(add_words)                                                                                   \
    X(cross_entropy)                                                                               \
    X(mean_loss)                                                                                   \
    X(loss_finish)                                                                                 \
    X(unscale)                                                                                     \
    X(unscale_finish)                                                                              \
    X(check)                                                                                       \
    X(squares)                                                                                     \
    X(squares_again)                                                                               \
    X(clip)                                                                                        \
    X(sgd)                                                                                         \
    X(adam)                                                                                        \
    X(statistic)

enum cuda_kernel {
#define CUDA_KERNEL_NUMBER(name) CUDA_KERNEL_##name,
    CUDA_KERNELS(CUDA_KERNEL_NUMBER)
#undef CUDA_KERNEL_NUMBER
        CUDA_KERNEL_COUNT,
};
