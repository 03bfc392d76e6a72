// dnn_plan.h - a convolution as a graph of cuDNN's backend API, and the plan that executes it.
//
// Threading: one thread, with the device's context current.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ports/cuda/cuda_library.h"
#include "runtime/port/compute.h"

// The tensors of a convolution. For a gradient, the tensor that it computes has the role of the
// tensor that it is for.
enum dnn_role {
    DNN_X,
    DNN_WEIGHT,
    DNN_Y,
    DNN_ROLES,
};

#define DNN_ALIGNMENT 16 // bytes; every tensor must be aligned to it
#define DNN_PARTS 16     // most descriptors of a plan

struct dnn_plan {
    cudnnBackendDescriptor_t parts[DNN_PARTS]; // owned
    int count;                                 // number of parts
    cudnnBackendDescriptor_t plan;             // one of the parts; NULL: no plan was found
    size_t workspace;                          // bytes of workspace that the plan needs
    int64_t engine;                            // the library's number of the engine; -1: not told
};

// Returns the least padding at the end of an axis that gives w->out. Below 0 so many rows or
// columns are reached by no window.
int64_t dnn_plan_least_end(const struct cn_window *w, int axis);

// Returns whether as much padding at the end as at the start gives w->out.
bool dnn_plan_is_even(const struct cn_window *w, int axis);

// Finds a plan for a convolution or one of its gradients. CN_ENOTSUP when cuDNN has none that is
// deterministic, keeps the precision and needs at most workspace bytes; plan->plan is then
// NULL. With float32 and TF32, tensors lie as n x channels x rows x cols. With 16 bits they lie as
// n x rows x cols x channels.
cn_err dnn_plan_open(const struct cuda_dnn *dnn, cudnnHandle_t handle, enum cn_op op,
                     const struct cn_window *window, uint32_t samples, enum cn_precision precision,
                     size_t workspace, struct dnn_plan *plan);

// As dnn_plan_open, for the proposal with that number among those that can be taken, from 0 on.
// CN_ENOTSUP when there are fewer.
cn_err dnn_plan_open_number(const struct cuda_dnn *dnn, cudnnHandle_t handle, enum cn_op op,
                            const struct cn_window *window, uint32_t samples,
                            enum cn_precision precision, size_t workspace, uint32_t number,
                            struct dnn_plan *plan);

// Frees the plan's descriptors. Accepts a zeroed plan.
void dnn_plan_close(const struct cuda_dnn *dnn, struct dnn_plan *plan);

// Queues the plan on the handle's stream. workspace is aligned to 256 bytes. CN_ENOTSUP when the
// library refuses it after all, with nothing queued; CN_EIO for other errors.
cn_err dnn_plan_run(const struct cuda_dnn *dnn, cudnnHandle_t handle, const struct dnn_plan *plan,
                    void *tensors[DNN_ROLES], void *workspace);
