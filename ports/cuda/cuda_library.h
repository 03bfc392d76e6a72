// cuda_library.h - the functions of NVIDIA's libraries that this port calls, found when it opens.
//
// Nothing is linked, so a program with this port starts on a machine without a GPU. The names are
// those that CUDA 12.6 and cuDNN 9.3 export, so later versions have them too. Tests fill in the
// tables themselves.
#pragma once

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn_graph.h>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

// Lists of X(member, function): the name in the table and the library's function.
#define CUDA_DRIVER_FUNCTIONS(X)                                                                   \
    X(init, cuInit)                                                                                \
    X(driver_version, cuDriverGetVersion)                                                          \
    X(device_count, cuDeviceGetCount)                                                              \
    X(device_get, cuDeviceGet)                                                                     \
    X(device_name, cuDeviceGetName)                                                                \
    X(device_attribute, cuDeviceGetAttribute)                                                      \
    X(context_retain, cuDevicePrimaryCtxRetain)                                                    \
    X(context_set, cuCtxSetCurrent)                                                                \
    X(module_load, cuModuleLoadData)                                                               \
    X(module_unload, cuModuleUnload)                                                               \
    X(module_function, cuModuleGetFunction)                                                        \
    X(stream_create, cuStreamCreate)                                                               \
    X(stream_destroy, cuStreamDestroy_v2)                                                          \
    X(stream_wait, cuStreamSynchronize)                                                            \
    X(stream_wait_event, cuStreamWaitEvent)                                                        \
    X(event_create, cuEventCreate)                                                                 \
    X(event_destroy, cuEventDestroy_v2)                                                            \
    X(event_record, cuEventRecord)                                                                 \
    X(event_wait, cuEventSynchronize)                                                              \
    X(event_query, cuEventQuery)                                                                   \
    X(allocate, cuMemAlloc_v2)                                                                     \
    X(allocate_managed, cuMemAllocManaged)                                                         \
    X(release, cuMemFree_v2)                                                                       \
    X(allocate_host, cuMemHostAlloc)                                                               \
    X(release_host, cuMemFreeHost)                                                                 \
    X(host_pointer, cuMemHostGetDevicePointer_v2)                                                  \
    X(copy_in, cuMemcpyHtoDAsync_v2)                                                               \
    X(copy_out, cuMemcpyDtoHAsync_v2)                                                              \
    X(copy_within, cuMemcpyDtoDAsync_v2)                                                           \
    X(fill_bytes, cuMemsetD8Async)                                                                 \
    X(launch, cuLaunchKernel)                                                                      \
    X(capture_begin, cuStreamBeginCapture_v2)                                                      \
    X(capture_end, cuStreamEndCapture)                                                             \
    X(graph_prepare, cuGraphInstantiateWithFlags)                                                  \
    X(graph_launch, cuGraphLaunch)                                                                 \
    X(graph_destroy, cuGraphDestroy)                                                               \
    X(prepared_destroy, cuGraphExecDestroy)                                                        \
    X(error_name, cuGetErrorName)

#define CUDA_BLAS_FUNCTIONS(X)                                                                     \
    X(create, cublasLtCreate)                                                                      \
    X(destroy, cublasLtDestroy)                                                                    \
    X(product_create, cublasLtMatmulDescCreate)                                                    \
    X(product_destroy, cublasLtMatmulDescDestroy)                                                  \
    X(product_set, cublasLtMatmulDescSetAttribute)                                                 \
    X(matrix_create, cublasLtMatrixLayoutCreate)                                                   \
    X(matrix_destroy, cublasLtMatrixLayoutDestroy)                                                 \
    X(matrix_set, cublasLtMatrixLayoutSetAttribute)                                                \
    X(wish_create, cublasLtMatmulPreferenceCreate)                                                 \
    X(wish_destroy, cublasLtMatmulPreferenceDestroy)                                               \
    X(wish_set, cublasLtMatmulPreferenceSetAttribute)                                              \
    X(choose, cublasLtMatmulAlgoGetHeuristic)                                                      \
    X(multiply, cublasLtMatmul)

#define CUDA_DNN_FUNCTIONS(X)                                                                      \
    X(version, cudnnGetVersion)                                                                    \
    X(create, cudnnCreate)                                                                         \
    X(destroy, cudnnDestroy)                                                                       \
    X(set_stream, cudnnSetStream)                                                                  \
    X(describe, cudnnBackendCreateDescriptor)                                                      \
    X(forget, cudnnBackendDestroyDescriptor)                                                       \
    X(set, cudnnBackendSetAttribute)                                                               \
    X(finalize, cudnnBackendFinalize)                                                              \
    X(get, cudnnBackendGetAttribute)                                                               \
    X(execute, cudnnBackendExecute)

#define CUDA_MEMBER(member, function) __typeof__(function) *(member);

struct cuda_driver {
    CUDA_DRIVER_FUNCTIONS(CUDA_MEMBER)
};

struct cuda_blas {
    CUDA_BLAS_FUNCTIONS(CUDA_MEMBER)
};

struct cuda_dnn {
    CUDA_DNN_FUNCTIONS(CUDA_MEMBER)
};

struct cuda_library {
    struct cuda_driver driver;
    struct cuda_blas blas; // create is NULL without cuBLASLt: the port's kernel multiplies
    struct cuda_dnn dnn;   // create is NULL without cuDNN: the port's kernels convolve
    void *handles[3];      // owned: of dlopen; NULL: not there
};

// Opens the libraries. Without the driver's library it returns CN_ENOTSUP and logs why at level
// absence. Without cuBLASLt or cuDNN it logs a warning and succeeds.
cn_err cuda_library_open(struct cuda_library *library, enum cn_log_level absence);

// Closes the libraries. Accepts a zeroed struct.
void cuda_library_close(struct cuda_library *library);
