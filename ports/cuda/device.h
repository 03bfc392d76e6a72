// device.h - one GPU: its context, memory and queue. Only files of this directory and the tests of
// this port include this header.
//
// Work goes to one stream, in call order. A program is captured once as a CUDA graph; values that
// change from run to run lie in device memory, written by the first kernel of a run. A second
// stream copies batches to the device and shown parts to the host, while the first computes.
//
// Threading: one thread at a time; each function of the port's table makes the context current
// first. Functions that return cn_err log errors of the driver.
#pragma once

#include <stdbool.h>

#include "ports/cuda/cuda_library.h"
#include "ports/cuda/kernels/kernels.h"
#include "runtime/port/compute.h"

struct cuda_conv; // the plan of a convolution, see convolution.c

// An arena on the device, and what the host sees of it.
struct cuda_arena {
    CUdeviceptr device;
    void *host;   // what map returns: the memory itself or a pinned copy; NULL: not for the host
    size_t words; // without the 16 words that are reserved after it
    bool same;    // host and device share one memory
    bool managed; // managed memory, which the driver moves or maps itself
    bool stale;   // the device may have written since the host last saw it
    size_t shown; // words, from the first on, that were shown since unmap
};

#define CUDA_GRID_TURNS 16 // most blocks of a launch, for each multiprocessor

struct cuda {
    struct cn_compute base;
    struct cuda_library library;
    uint32_t number; // of the GPU
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction kernels[CUDA_KERNEL_COUNT];
    CUstream stream, copies;         // of the work; of copies beside it
    CUevent filled, taken;           // the staging buffer holds a batch; it was read
    CUevent complete;                // the work before a shown part is done
    CUevent shows[CN_COMPUTE_SHOWS]; // each shown part has arrived
    uint32_t show_count, seen;       // parts shown since unmap; those that shown() has reported
    cublasLtHandle_t blas;           // NULL: the port's kernels multiply
    cudnnHandle_t dnn;               // NULL: the port's kernels convolve
    enum cn_precision precision;
    enum cn_log_level absence; // level of the message that no GPU can be used
    bool unified;              // host and GPU share one memory
    bool managed;              // unified, and managed memory exists, which both may cache
    bool apart;                // managed, but the host must not touch it while the GPU works
    uint32_t threads;          // threads of a block
    uint32_t processors;       // multiprocessors
    uint32_t grid;             // most blocks of a launch that are useful
    size_t product_words;      // words of the workspace of a product by cuBLASLt
    uint32_t samples;          // samples of the largest batch
    bool first;                // the work that is queued is that of a step's first batch
    struct cuda_arena arenas[CN_ARENA_COUNT];
    CUdeviceptr staging;       // a batch on its way to the device; 0 when unified
    CUdeviceptr state, hyper;  // struct cuda_state; struct cn_hyper of the run
    CUdeviceptr squares[2];    // buffers for the sums of CLIP
    struct cuda_state *result; // pinned copy of state
    struct cuda_conv *convs;   // owned: all plans
    bool read;                 // no run has begun since the host read the results
    cn_err failed;             // the first error since the last wait
};

// Rounds a part of a workspace up to whole 256 bytes.
static inline size_t cuda_round_words(size_t words)
{
    return (words + 63) / 64 * 64;
}

// Returns whether the device computes with factors of 16 bits.
static inline bool cuda_is_short(const struct cuda *cuda)
{
    return cuda->precision == CN_PRECISION_BFLOAT16 || cuda->precision == CN_PRECISION_FLOAT16;
}

// Maps the driver's result and logs an error: CN_ENOMEM when memory is short, else CN_EIO. what
// names the failed call.
cn_err cuda_check(const struct cuda *cuda, CUresult result, const char *what);

// Opens the GPU that config names. library is copied; its handles stay the caller's. CN_ENOTSUP
// when there is no GPU that the kernels run on. After an error call cuda_device_close.
cn_err cuda_device_open(struct cuda *cuda, const struct cuda_library *library,
                        const struct cn_compute_config *config);

// Waits for queued work and releases everything. Accepts a device that failed to open.
void cuda_device_close(struct cuda *cuda);

// Alignment of a workspace of cuBLASLt or cuDNN, in bytes. The engine's workspaces are aligned to
// less, so aligning one takes up to that many of its bytes.
#define CUDA_WORKSPACE_UNIT 256

// Returns the first aligned address of a workspace.
static inline void *cuda_align_workspace(float *workspace)
{
    uintptr_t rest = (uintptr_t)workspace % CUDA_WORKSPACE_UNIT;

    return (char *)workspace + (rest ? CUDA_WORKSPACE_UNIT - rest : 0);
}

// Do what the functions of the same names of struct cn_compute_ops promise. The context must be
// current. cuda_memory_release frees all memory instead.
cn_err cuda_memory_reserve(struct cuda *cuda, const struct cn_compute_sizes *sizes,
                           uint32_t samples);
void cuda_memory_release(struct cuda *cuda);
cn_err cuda_memory_map(struct cuda *cuda, enum cn_arena arena, void **host);
cn_err cuda_memory_unmap(struct cuda *cuda, enum cn_arena arena);
cn_err cuda_memory_show(struct cuda *cuda, enum cn_arena arena, size_t first, size_t count,
                        void **host);
cn_err cuda_memory_shown(struct cuda *cuda, bool wait);

// Queue a kernel: with enough blocks of cuda->threads for count threads, or with `blocks` blocks.
// Both use at most cuda->grid blocks. args is copied.
cn_err cuda_launch_threads(struct cuda *cuda, enum cuda_kernel kernel, struct cuda_args *args,
                           uint64_t count);
cn_err cuda_launch_blocks(struct cuda *cuda, enum cuda_kernel kernel, struct cuda_args *args,
                          uint64_t blocks);

// Queues the sum of partial sums in the workspace, args->parts times `count` of them, for the first
// output and the second, if that is there.
cn_err cuda_sum_parts(struct cuda *cuda, struct cuda_args *args, size_t count);

// Fills in args for a call: its operands become addresses. Operands that are left out, and all
// operands of flat calls, become NULL. CN_WRITE_STEP becomes what it means for the batch that is
// queued (cuda->first).
void cuda_args_of(const struct cuda *cuda, const struct cn_call *call, struct cuda_args *args);

// Queues the work of a call; called while a graph is captured. clipped: a CLIP call came before.
cn_err cuda_lower(struct cuda *cuda, const struct cn_call *call, bool clipped);

// Queues the work of a flat call (from CN_OP_BATCH_COUNT on) that is no optimizer's, for
// cuda_lower.
cn_err cuda_lower_flat(struct cuda *cuda, struct cuda_args *args);

// Sets *workspace to the words that the call needs. CN_ENOTSUP when this port cannot do the call
// with that many samples.
cn_err cuda_lower_query(struct cuda *cuda, const struct cn_call *call, size_t samples,
                        size_t *workspace);
