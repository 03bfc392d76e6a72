// cuda_host.h - a GPU that is not there: the tables of ports/cuda filled with functions for the
// host.
//
// The port above them is the real one: its memory, its captured programs, its descriptors. Kernels
// are the real text, compiled as C; the driver, cuBLASLt and cuDNN are doubles that check what they
// are told and compute it by plain loops. A captured graph is a list of work. Work of a stream is
// done at once or, on a late GPU, when somebody waits for it: a wait or an event that is missing
// then shows. One device at a time for each thread.
//
// The doubles have the names of what they stand for. Tests of the port link them; as shared
// libraries in build/NAME/tests/support/cuda_host they are what a program finds that is started
// with LD_LIBRARY_PATH. CAIRN_CUDA_HOST="unified managed apart pageable late backwards two" in the
// environment names settings.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ports/cuda/kernels.h"
#include "runtime/port/compute.h"

// The port on that GPU, for the contract tests: "cuda_host".
extern const struct cn_compute_ops cn_compute_cuda_host;

// That or, with CAIRN_COMPUTE=cuda in the environment, the real one: the program ends with 77,
// which is "skipped", where it does not open.
const struct cn_compute_ops *cuda_host_or_real(void);

// How the GPU is. Zeroed: a card with memory of its own, all libraries, nothing fails.
struct cuda_host_settings {
    bool unified;          // it shares the host's memory
    bool managed;          // and has managed memory
    bool pageable;         // copies of any host memory, as the real one does, but then waits
    bool apart;            // which the host must not touch while the GPU works; shows on a late one
    bool late;             // nothing is done before somebody waits for it
    bool backwards;        // of a launch the last block and thread is the first
    bool no_blas, no_dnn;  // libraries that are missing
    bool loaded;           // the libraries count as loaded ones: devices leave their handles
    bool no_capture;       // a graph cannot be captured
    bool no_device;        // the driver is there, the GPU is not
    int devices;           // 0: 1
    int driver_version;    // 0: that of the build
    bool old_driver;       // it is for the major version of CUDA before that of the build
    int capability;        // 0: 87
    uint32_t block;        // threads of a block; 0: 64
    uint64_t fail_at;      // the call of the driver that fails, counted from 1; 0: none
    bool fail_on;          // and all after it
    bool refuse_libraries; // the libraries have no way for any product or convolution
    bool turn_down;        // or turn it down when it is to be done
    bool greedy;           // cuBLASLt wants all the workspace that it may have
    uint32_t alignment;    // bytes: what cuBLASLt has a way for; 0: any
};

extern struct cuda_host_settings cuda_host_settings;

// What the doubles were asked, since the program started.
struct cuda_host_counts {
    uint64_t driver_calls, launches, graph_launches, captures;
    uint64_t launches_done;          // of graphs, by now
    uint64_t products, convolutions; // done by the libraries' doubles
    uint64_t gelus, gelu_grads;      // of the products, those that end so
    uint64_t modules, handles;       // loaded and made so far
    uint64_t allocations;            // of device or host memory, that still stand
    uint64_t descriptors;            // of all libraries, that still stand
    uint64_t copied_in, copied_out;  // bytes
};

extern struct cuda_host_counts cuda_host_counts;

// Bytes: what the libraries' workspaces begin at a multiple of (cublasLtMatmul).
#define CUDA_HOST_WORKSPACE_UNIT 256

// For the doubles: a function in the table of cuda_library.h.
#define CUDA_HOST_ENTRY(member, function) .member = (function),
struct cuda_library;
struct cuda_host_stream;
int cuda_host_kernel(const char *name); // -1: there is none
void cuda_host_run(int kernel, uint32_t blocks, uint32_t threads, const struct cuda_args *args);
void cuda_host_fill_driver(struct cuda_library *library);
void cuda_host_fill_blas(struct cuda_library *library);
void cuda_host_fill_dnn(struct cuda_library *library);

// Work for a stream: run(context) now, or later as part of the graph that is captured. context is
// size bytes and is copied.
void cuda_host_submit(void *stream, void (*run)(const void *context), const void *context,
                      size_t size);
