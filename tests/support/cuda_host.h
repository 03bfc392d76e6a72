// cuda_host.h - an emulated GPU: the tables of ports/cuda filled with functions of the host.
//
// The port above the tables is the real one, with its memory, captured programs and descriptors.
// The kernels are the real source text, compiled as C. The driver, cuBLASLt and cuDNN are doubles:
// they check their arguments and compute with plain loops. A captured graph is a list of work. Work
// of a stream is done at once, or, on a late GPU, when something waits for it. A missing wait or
// event then shows. Each thread has one device at a time.
//
// The doubles have the names of the functions that they replace. Tests of the port link them. As
// shared libraries they lie in build/NAME/tests/support/cuda_host, where LD_LIBRARY_PATH lets a
// program find them. The environment variable CAIRN_CUDA_HOST="unified managed apart pageable late
// backwards wide two" switches settings on by name; "wide" means blocks of 256 threads, as real
// GPUs have them, and "two" two devices.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ports/cuda/kernels/kernels.h"
#include "runtime/port/compute.h"

// The port on the emulated GPU, for the contract tests; its name is "cuda_host".
extern const struct cn_compute_ops cn_compute_cuda_host;

// Returns the port on the emulated GPU or, with CAIRN_COMPUTE=cuda in the environment, the real
// one. If the real one does not open, ends the program with 77, which means "skipped".
const struct cn_compute_ops *cuda_host_or_real(void);

// What the emulated GPU is like. Zeroed: a card with memory of its own and all libraries, which
// never fails.
struct cuda_host_settings {
    bool unified;  // shares the host's memory
    bool managed;  // has managed memory
    bool pageable; // copies from and to any host memory, also memory that is not pinned
    bool apart; // the host must not touch managed memory while the GPU works; shows on a late GPU
    bool late;  // work is done only when something waits for it
    bool backwards;       // a launch runs its last block and thread first
    bool no_blas, no_dnn; // the library is missing
    bool loaded; // the libraries count as loaded at the start: devices do not destroy their handles
    bool no_capture;       // a graph cannot be captured
    bool cold;             // nor what a library does first, until it has done something outside
    bool no_device;        // the driver is there, but no GPU
    int devices;           // number of GPUs; 0: 1
    int driver_version;    // 0: the version of the build
    int capability;        // compute capability times ten; 0: 87
    int processors;        // multiprocessors; 0: 8
    uint32_t block;        // threads of a block; 0: 64
    uint64_t fail_at;      // number of the driver call that fails, counted from 1; 0: none
    bool fail_on;          // all calls after fail_at fail, too
    bool refuse_libraries; // the libraries find no algorithm for any product or convolution
    bool turn_down;        // the libraries find an algorithm, but refuse to run it
    bool greedy;           // cuBLASLt asks for all the workspace that it may have
    uint32_t alignment;    // bytes to which cuBLASLt needs its operands aligned; 0: any
};

extern struct cuda_host_settings cuda_host_settings;

// What the doubles were asked to do since the program started.
struct cuda_host_counts {
    uint64_t driver_calls, launches, graph_launches, captures;
    uint64_t launches_done;          // launches of graphs that have been done
    uint64_t products, convolutions; // done by the doubles of the libraries
    uint64_t matrices, packed;       // of these products; products of factors of 16 bits
    uint64_t gelus, gelu_grads;      // products that end with GELU or with its gradient
    uint64_t modules, handles;       // modules loaded and handles made so far
    const void *image;               // of the module that was loaded last
    uint64_t allocations;            // allocations of device or host memory that exist now
    uint64_t descriptors;            // descriptors of all libraries that exist now
    uint64_t copied_in, copied_out;  // bytes
};

extern struct cuda_host_counts cuda_host_counts;

// Bytes; the libraries' workspaces begin at a multiple of this (cublasLtMatmul).
#define CUDA_HOST_WORKSPACE_UNIT 256

// For the doubles: an entry of the table in cuda_library.h.
#define CUDA_HOST_ENTRY(member, function) .member = (function),
struct cuda_library;
struct cuda_host_stream;
int cuda_host_kernel(const char *name); // returns -1 when there is no such kernel
void cuda_host_run(int kernel, uint32_t blocks, uint32_t threads, const struct cuda_args *args);
void cuda_host_fill_driver(struct cuda_library *library);
void cuda_host_fill_blas(struct cuda_library *library);
void cuda_host_fill_dnn(struct cuda_library *library);

// Notes that a library works on a stream, see cold.
void cuda_host_warm(void *stream);

// Submits work to a stream: calls run(context) now, or later as part of the graph that is being
// captured. context has size bytes and is copied.
void cuda_host_submit(void *stream, void (*run)(const void *context), const void *context,
                      size_t size);
