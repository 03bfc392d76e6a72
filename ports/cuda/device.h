// device.h - one GPU: its context, memory and queue. Nothing outside this directory includes it,
// but the tests of this port.
//
// Work goes to one stream in call order. A program is captured once as a CUDA graph; what changes
// from run to run lies in device memory, written by the first kernel of a run. Only batches have a
// second stream: their copy to the device may go on while the run before still computes.
#pragma once

#include <stdbool.h>

#include "ports/cuda/cuda_library.h"
#include "ports/cuda/kernels.h"
#include "runtime/port/compute.h"

struct cuda_conv; // a convolution's plan, see convolution.h

struct cuda_arena {
    CUdeviceptr device;
    void *host;   // what map shows: the memory itself, or a pinned copy; NULL: not for the host
    size_t words; // with a reserve of 16 at the end
    bool same;    // host and device see one memory
    bool managed; // which the driver moves or maps as it likes
    bool stale;   // the device may have written since the host looked
    size_t shown; // words in front that were shown since unmap
};

struct cuda {
    struct cn_compute base;
    struct cuda_library library;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction kernels[CUDA_KERNEL_COUNT];
    CUstream stream, copies;
    CUevent filled, taken; // the staging of a batch is complete; it was read
    CUevent complete;      // a part that is shown
    CUevent shows[CN_COMPUTE_SHOWS];
    uint32_t show_count, seen; // since unmap
    cublasLtHandle_t blas;     // NULL: own kernels
    cudnnHandle_t dnn;
    enum cn_precision precision;
    enum cn_log_level absence; // at which it is said that no GPU can be used
    bool unified;              // host and GPU share the memory
    bool managed;              // and it may be cached by both
    bool apart;                // but the host must not touch it while the GPU works
    uint32_t threads;          // of a block
    uint32_t grid;             // the largest that is useful
    size_t product_words;      // of the workspace of a product by cuBLASLt
    uint32_t samples;          // the largest batch
    struct cuda_arena arenas[CN_ARENA_COUNT];
    CUdeviceptr staging; // a batch on its way; 0 when unified
    CUdeviceptr state, hyper;
    CUdeviceptr squares[2];    // sums of CLIP
    struct cuda_state *result; // pinned
    struct cuda_conv *convs;   // all plans
    cn_err failed;             // the first error since the last wait
};

// Maps the driver's result; a line in the log says what failed.
cn_err cuda_check(const struct cuda *cuda, CUresult result, const char *what);

// library is copied. CN_ENOTSUP when there is no GPU that these kernels run on.
cn_err cuda_device_open(struct cuda *cuda, const struct cuda_library *library,
                        const struct cn_compute_config *config);
void cuda_device_close(struct cuda *cuda);

// Bytes: what a workspace of cuBLASLt or cuDNN begins at a multiple of. The engine's places are
// multiples of 64, so there is as much more of it.
#define CUDA_WORKSPACE_UNIT 256

static inline void *cuda_align_workspace(float *workspace)
{
    uintptr_t rest = (uintptr_t)workspace % CUDA_WORKSPACE_UNIT;

    return (char *)workspace + (rest ? CUDA_WORKSPACE_UNIT - rest : 0);
}

cn_err cuda_memory_reserve(struct cuda *cuda, const struct cn_compute_sizes *sizes,
                           uint32_t samples);
void cuda_memory_release(struct cuda *cuda);
cn_err cuda_memory_map(struct cuda *cuda, enum cn_arena arena, void **host);
cn_err cuda_memory_unmap(struct cuda *cuda, enum cn_arena arena);
cn_err cuda_memory_show(struct cuda *cuda, enum cn_arena arena, size_t first, size_t count,
                        void **host);
cn_err cuda_memory_shown(struct cuda *cuda, bool wait);

// Queues a kernel with enough blocks of cuda->threads for count threads, or with exactly blocks.
cn_err cuda_launch_threads(struct cuda *cuda, enum cuda_kernel kernel, struct cuda_args *args,
                           uint64_t count);
cn_err cuda_launch_blocks(struct cuda *cuda, enum cuda_kernel kernel, struct cuda_args *args,
                          uint64_t blocks);

// The call's operands as addresses; args of an op without operands of that kind are NULL.
void cuda_args_of(const struct cuda *cuda, const struct cn_call *call, struct cuda_args *args);

// Queues what a call does. Programs call it while a graph is captured. clipped: CLIP came before.
cn_err cuda_lower(struct cuda *cuda, const struct cn_call *call, bool clipped);

// The same for a call from CN_OP_BATCH_COUNT on, by cuda_lower.
cn_err cuda_lower_flat(struct cuda *cuda, struct cuda_args *args);

// CN_ENOTSUP when this port cannot do the call with that many samples; else its workspace.
cn_err cuda_lower_query(struct cuda *cuda, const struct cn_call *call, size_t samples,
                        size_t *workspace);
