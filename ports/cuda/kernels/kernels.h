// kernels.h - the kernels of this port and their arguments.
//
// Every kernel takes the same argument: the call as the engine wrote it, with its operands as
// pointers of the device. The comment at a kernel says what it uses.
#pragma once

#include "runtime/port/compute.h"

// Values that kernels leave for each other and for the host. Lies on the device.
struct cuda_state {
    double loss, weight; // sums of losses and weights since the last wait
    double squares;      // sum of the gradient's squares so far, by CLIP
    double norm;         // the gradient's norm, by CLIP
    uint64_t correct;
    uint32_t bad;      // since the last wait: a gradient was not finite
    uint32_t outside;  // since the last wait: an index or label was out of range
    uint32_t overflow; // since the last wait: float16's scale was too large
    // In this flat program: the optimizer does nothing, because a gradient was not finite.
    uint32_t skip;
    float clip;     // the factor of CLIP
    float scale;    // factor of the loss: a power of 2; 1 except with float16
    uint32_t steps; // steps since the scale was last changed
};

// The sums of one block of a loss kernel.
struct cuda_loss_part {
    double loss, weight;
    uint64_t correct;
};

// A range of an optimizer's launch. A launch has a table of them, on the device.
struct cuda_range {
    uint32_t weights, gradients, state; // first words, in the arenas
    uint32_t end;                       // words of the launch up to the end of this range
};

// Shares of a sample's outputs that mean_loss divides among blocks, of 4096 outputs or more.
#define CUDA_LOSS_SHARES(outputs)                                                                  \
    ((outputs) < 8192 ? 1u : (outputs) / 4096 < 64 ? (uint32_t)((outputs) / 4096) : 64u)
#define CUDA_LOSS_BLOCKS 1024   // most blocks of a loss kernel
#define CUDA_TILE_THREADS 256   // threads of a block of products and of attention
#define CUDA_ATTENTION_ROWS 64  // rows of a head that a block of the attention kernels works on
#define CUDA_ATTENTION_WIDTH 64 // words of a row up to which these need not be the wide ones
#define CUDA_SHORT_ROWS 128     // rows of a head for a block of those that compute in 16 bits
#define CUDA_HELD 64     // most units of a recurrent layer whose weight a block holds in registers
#define CUDA_HIT_WORDS 8 // words of a row that a thread of gather_grad adds up
// Warps that a row of gather_grad or gather_grad_hits is divided among.
#define CUDA_HIT_STRIPS(inner)                                                                     \
    ((uint32_t)(((inner) + CUDA_HIT_WORDS * 32 - 1) / (CUDA_HIT_WORDS * 32)))

// The argument of every kernel.
struct cuda_args {
    struct cn_call call;
    float *in[CN_CALL_INPUTS]; // NULL: left out
    float *out[CN_CALL_OUTPUTS];
    float *workspace;
    struct cn_hyper *hyper; // of this run, on the device
    struct cuda_state *state;
    uint32_t samples; // samples of the largest batch; outputs of all of them are computed
    uint32_t parts;   // number of partial sums; see the kernel
    bool once;        // no operand has a stride: the call is that of one sample
    // A block works on a row, instead of a warp. In bias_relu: apply ReLU. In pack, unpack and
    // pack_lines: the format is float16, else bfloat16.
    bool wide;
    bool clipped; // the optimizer multiplies by the factor of CLIP
    // For the kernel begin: whether the run is that of a flat program, whether the host has read
    // the results, and the hyper-parameters of the run.
    bool flat, read;
    struct cn_hyper next;
};

// The list of all kernels, X(name).
#define CUDA_KERNELS(X)                                                                            \
    X(begin)                                                                                       \
    X(repeat)                                                                                      \
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
    X(batch_norm_parts)                                                                            \
    X(batch_norm)                                                                                  \
    X(batch_norm_grad_parts)                                                                       \
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
    X(gather_grad_clear)                                                                           \
    X(gather_grad_hits)                                                                            \
    X(gather_grad_elements)                                                                        \
    X(transpose_weight)                                                                            \
    X(recurrent)                                                                                   \
    X(recurrent_grad)                                                                              \
    X(recurrent_held)                                                                              \
    X(recurrent_grad_held)                                                                         \
    X(attention)                                                                                   \
    X(attention_wide)                                                                              \
    X(attention_bfloat16)                                                                          \
    X(attention_float16)                                                                           \
    X(attention_grad_query)                                                                        \
    X(attention_grad_query_wide)                                                                   \
    X(attention_grad_query_bfloat16)                                                               \
    X(attention_grad_query_float16)                                                                \
    X(attention_grad_key)                                                                          \
    X(attention_grad_key_wide)                                                                     \
    X(attention_grad_key_bfloat16)                                                                 \
    X(attention_grad_key_float16)                                                                  \
    X(products)                                                                                    \
    X(bias_relu)                                                                                   \
    X(conv)                                                                                        \
    X(conv_grad_input)                                                                             \
    X(conv_grad_weight)                                                                            \
    X(copy_lines)                                                                                  \
    X(pack_lines)                                                                                  \
    X(pack)                                                                                        \
    X(unpack)                                                                                      \
    X(pack_tiles)                                                                                  \
    X(unpack_tiles)                                                                                \
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
