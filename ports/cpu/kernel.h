// kernel.h - one call on one lane, and the functions that do it.
//
// Kernel files are compiled once for each instruction set, with CPU_ISA set to its name; the port
// picks a table when it opens. Only files of this directory include this one. Kernels allocate
// nothing; each runs on its lane's thread. runtime/port/compute.h specifies the ops and the order
// of their operands.
#pragma once

#include "ports/cpu/lanes.h"
#include "runtime/port/compute.h"

// A call with the operands of one lane.
struct cpu_task {
    const struct cn_call *call;
    const struct cn_hyper *hyper;
    size_t samples;                  // number of samples of this lane; may be 0
    size_t first;                    // number in the batch of this lane's first sample
    const float *in[CN_CALL_INPUTS]; // operands at the lane's first sample; NULL when left out
    float *out[CN_CALL_OUTPUTS];
    float *workspace; // this lane's workspace, with as many words as workspace() returned
    bool add;         // add to the outputs; the call's cn_write, resolved
    struct cn_compute_result *result; // result of this lane
    cn_err *err; // error of this lane; a kernel sets it to the error that wait returns

    // Values that the lanes share, for the few ops that need the whole batch. A lane writes its own
    // part and calls cpu_lanes_meet. From then until the end of the call it may read all parts.
    struct cpu_lanes *threads;
    uint32_t lane, lanes;
    double *shown;       // the part of lane 0
    size_t shown_stride; // doubles from one lane's part to the next one's
};

// The functions of one op. workspace returns words for a lane.
struct cpu_kernel {
    void (*run)(const struct cpu_task *task);
    size_t (*workspace)(const struct cn_call *call, size_t samples); // NULL: none
    // Doubles that a lane shows; NULL: lanes do not meet.
    size_t (*shown)(const struct cn_call *call);
};

// The kernels of one instruction set.
struct cpu_kernels {
    const char *name;
    struct cpu_kernel ops[CN_OP_BATCH_COUNT]; // by enum cn_op
};

// Words beyond any operand that kernels may read but do not use.
#define CPU_SLACK 64

#ifdef CPU_ISA
#define CPU_PASTE(isa, name) cpu_##isa##_##name
#define CPU_EXPAND(isa, name) CPU_PASTE(isa, name)
#define CPU_NAME(name) CPU_EXPAND(CPU_ISA, name)

#define cpu_matmul CPU_NAME(matmul)
#define cpu_matmul_workspace CPU_NAME(matmul_workspace)
#define cpu_products CPU_NAME(products)
#define cpu_products_workspace CPU_NAME(products_workspace)
#define cpu_conv CPU_NAME(conv)
#define cpu_conv_workspace CPU_NAME(conv_workspace)
#define cpu_conv_grad_input CPU_NAME(conv_grad_input)
#define cpu_conv_grad_input_workspace CPU_NAME(conv_grad_input_workspace)
#define cpu_conv_grad_weight CPU_NAME(conv_grad_weight)
#define cpu_conv_grad_weight_workspace CPU_NAME(conv_grad_weight_workspace)
#define cpu_bias_grad CPU_NAME(bias_grad)
#define cpu_max_pool CPU_NAME(max_pool)
#define cpu_max_pool_grad CPU_NAME(max_pool_grad)
#define cpu_average_pool CPU_NAME(average_pool)
#define cpu_average_pool_grad CPU_NAME(average_pool_grad)
#define cpu_map CPU_NAME(map)
#define cpu_map_grad CPU_NAME(map_grad)
#define cpu_combine CPU_NAME(combine)
#define cpu_combine_grad CPU_NAME(combine_grad)
#define cpu_where CPU_NAME(where)
#define cpu_copy CPU_NAME(copy)
#define cpu_fill CPU_NAME(fill)
#define cpu_softmax CPU_NAME(softmax)
#define cpu_softmax_grad CPU_NAME(softmax_grad)
#define cpu_norm CPU_NAME(norm)
#define cpu_norm_grad CPU_NAME(norm_grad)
#define cpu_norm_grad_affine CPU_NAME(norm_grad_affine)
#define cpu_gather CPU_NAME(gather)
#define cpu_gather_grad CPU_NAME(gather_grad)
#define cpu_batch_norm CPU_NAME(batch_norm)
#define cpu_batch_norm_grad CPU_NAME(batch_norm_grad)
#define cpu_batch_norm_shown CPU_NAME(batch_norm_shown)
#define cpu_dropout CPU_NAME(dropout)
#define cpu_recurrent CPU_NAME(recurrent)
#define cpu_recurrent_workspace CPU_NAME(recurrent_workspace)
#define cpu_recurrent_grad CPU_NAME(recurrent_grad)
#define cpu_recurrent_grad_workspace CPU_NAME(recurrent_grad_workspace)
#define cpu_attention CPU_NAME(attention)
#define cpu_attention_workspace CPU_NAME(attention_workspace)
#define cpu_attention_grad CPU_NAME(attention_grad)
#define cpu_attention_grad_workspace CPU_NAME(attention_grad_workspace)
#define cpu_resize CPU_NAME(resize)
#define cpu_resize_grad CPU_NAME(resize_grad)
#define cpu_extreme CPU_NAME(extreme)
#define cpu_extreme_grad CPU_NAME(extreme_grad)
#define cpu_cross_entropy CPU_NAME(cross_entropy)
#define cpu_mse CPU_NAME(mse)
#define cpu_binary_entropy CPU_NAME(binary_entropy)
#define cpu_huber CPU_NAME(huber)
#define cpu_mean_loss CPU_NAME(mean_loss)

// The functions of struct cpu_kernel, one set for each op.
void cpu_matmul(const struct cpu_task *task);
size_t cpu_matmul_workspace(const struct cn_call *call, size_t samples);
void cpu_products(const struct cpu_task *task);
size_t cpu_products_workspace(const struct cn_call *call, size_t samples);
void cpu_conv(const struct cpu_task *task);
size_t cpu_conv_workspace(const struct cn_call *call, size_t samples);
void cpu_conv_grad_input(const struct cpu_task *task);
size_t cpu_conv_grad_input_workspace(const struct cn_call *call, size_t samples);
void cpu_conv_grad_weight(const struct cpu_task *task);
size_t cpu_conv_grad_weight_workspace(const struct cn_call *call, size_t samples);
void cpu_bias_grad(const struct cpu_task *task);
void cpu_max_pool(const struct cpu_task *task);
void cpu_max_pool_grad(const struct cpu_task *task);
void cpu_average_pool(const struct cpu_task *task);
void cpu_average_pool_grad(const struct cpu_task *task);
void cpu_map(const struct cpu_task *task);
void cpu_map_grad(const struct cpu_task *task);
void cpu_combine(const struct cpu_task *task);
void cpu_combine_grad(const struct cpu_task *task);
void cpu_where(const struct cpu_task *task);
void cpu_copy(const struct cpu_task *task);
void cpu_fill(const struct cpu_task *task);
void cpu_softmax(const struct cpu_task *task);
void cpu_softmax_grad(const struct cpu_task *task);
void cpu_norm(const struct cpu_task *task);
void cpu_norm_grad(const struct cpu_task *task);
void cpu_norm_grad_affine(const struct cpu_task *task);
void cpu_gather(const struct cpu_task *task);
void cpu_gather_grad(const struct cpu_task *task);
void cpu_batch_norm(const struct cpu_task *task);
void cpu_batch_norm_grad(const struct cpu_task *task);
size_t cpu_batch_norm_shown(const struct cn_call *call);
void cpu_dropout(const struct cpu_task *task);
void cpu_recurrent(const struct cpu_task *task);
size_t cpu_recurrent_workspace(const struct cn_call *call, size_t samples);
void cpu_recurrent_grad(const struct cpu_task *task);
size_t cpu_recurrent_grad_workspace(const struct cn_call *call, size_t samples);
void cpu_attention(const struct cpu_task *task);
size_t cpu_attention_workspace(const struct cn_call *call, size_t samples);
void cpu_attention_grad(const struct cpu_task *task);
size_t cpu_attention_grad_workspace(const struct cn_call *call, size_t samples);
void cpu_resize(const struct cpu_task *task);
void cpu_resize_grad(const struct cpu_task *task);
void cpu_extreme(const struct cpu_task *task);
void cpu_extreme_grad(const struct cpu_task *task);
void cpu_cross_entropy(const struct cpu_task *task);
void cpu_mse(const struct cpu_task *task);
void cpu_binary_entropy(const struct cpu_task *task);
void cpu_huber(const struct cpu_task *task);
void cpu_mean_loss(const struct cpu_task *task);
#endif
