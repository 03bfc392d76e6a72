// dnn_plan.h - a convolution as a graph of cuDNN's backend, and the plan that computes it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ports/cuda/cuda_library.h"
#include "runtime/port/compute.h"

enum dnn_role {
    DNN_X,
    DNN_WEIGHT,
    DNN_Y,
    DNN_ROLES,
};

#define DNN_ALIGNMENT 16 // bytes, of every tensor
#define DNN_PARTS 16     // descriptors of a plan, at most

struct dnn_plan {
    cudnnBackendDescriptor_t parts[DNN_PARTS]; // owned
    int count;
    cudnnBackendDescriptor_t plan; // one of them; NULL: none was found
    size_t workspace;              // bytes
};

// CN_ENOTSUP when cuDNN has no plan that repeats to the bit, keeps the precision and needs at most
// workspace bytes; plan->plan is then NULL. float32: tensors are n x channels x rows x cols. 16
// bits: their memory is n x rows x cols x channels.
cn_err dnn_plan_open(const struct cuda_dnn *dnn, cudnnHandle_t handle, enum cn_op op,
                     const struct cn_window *window, uint32_t samples, enum cn_precision precision,
                     size_t workspace, struct dnn_plan *plan);
void dnn_plan_close(const struct cuda_dnn *dnn, struct dnn_plan *plan);

// Queues it on the handle's stream. CN_ENOTSUP when the library does not take it after all. The
// workspace is aligned to 256 bytes.
cn_err dnn_plan_run(const struct cuda_dnn *dnn, cudnnHandle_t handle, const struct dnn_plan *plan,
                    void *tensors[DNN_ROLES], void *workspace);
