// trainer.h - one model on one compute device: gradients, optimizer steps, evaluation.
//
// A step is: accumulate once for each micro-batch, let the group sum the gradients and the sample
// count, then apply. Gradients are sums over samples (not means), so members with different batch
// sizes average correctly: apply divides by the samples of the whole step.
// All memory is taken by open; steps allocate nothing. With the same inputs, thread count and
// device every call gives the same bits. Threading: one thread at a time.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/dataset.h"
#include "runtime/engine/onnx.h"
#include "runtime/port/compute.h"

struct cn_trainer_config {
    const struct cn_compute_ops *compute;
    uint32_t threads;
    uint32_t batch; // samples of a micro-batch, the largest that accumulate and evaluate get
    enum cn_loss loss;
    float learning_rate, momentum, weight_decay;
    uint64_t seed;         // of what is drawn at random, see cn_trainer_draw
    uint64_t memory_limit; // bytes for everything this trainer allocates; 0 for no limit
};

struct cn_metrics { // sums over samples
    double loss;
    uint64_t correct; // cross-entropy: samples whose largest output is the label
    uint64_t count;   // samples
};

struct cn_trainer;

// onnx is borrowed for the trainer's life. Unsupported ops come as one list in diag (CN_ENOTSUP).
cn_err cn_trainer_open(const struct cn_onnx *onnx, const struct cn_trainer_config *config,
                       struct cn_diag *diag, struct cn_trainer **trainer);
void cn_trainer_close(struct cn_trainer *trainer);

const struct cn_layout *cn_trainer_layout(const struct cn_trainer *trainer);
void cn_trainer_sample_shape(const struct cn_trainer *trainer, struct cn_sample_shape *shape);

// Bytes planned for weights, gradients, optimizer state, activations.
uint64_t cn_trainer_memory(const struct cn_trainer *trainer);

// Weights and optimizer state (momentum), layout order, total floats each, host memory.
cn_err cn_trainer_get_weights(struct cn_trainer *trainer, float *weights);
cn_err cn_trainer_set_weights(struct cn_trainer *trainer, const float *weights);
cn_err cn_trainer_get_optimizer(struct cn_trainer *trainer, float *state);
cn_err cn_trainer_set_optimizer(struct cn_trainer *trainer, const float *state); // NULL: zero

// Dropout draws from (seed, number of the sample): the next batch starts with sample number
// first_sample, which no other batch of the run should share. 0 when this is never called.
void cn_trainer_draw(struct cn_trainer *trainer, uint64_t first_sample);

// Forward and backward on one micro-batch; adds its gradient to the step's and its loss to metrics.
// CN_EDIVERGED when the loss is not finite: the step's gradient is then useless, the weights
// intact.
cn_err cn_trainer_accumulate(struct cn_trainer *trainer, const struct cn_batch *batch,
                             struct cn_metrics *metrics);

// Host view of the step's gradient, total floats, valid until apply. The caller may reduce in
// place.
cn_err cn_trainer_gradients(struct cn_trainer *trainer, float **gradients);

// One optimizer step with gradient / samples, then clears the gradient. CN_EDIVERGED when a
// gradient is not finite: weights and optimizer state are unchanged. SGD as PyTorch: v = momentum *
// v + (g + weight_decay * w); w = w - learning_rate * v.
cn_err cn_trainer_apply(struct cn_trainer *trainer, double samples);

// Drops what accumulate added.
cn_err cn_trainer_discard(struct cn_trainer *trainer);

// Forward only; adds to metrics.
cn_err cn_trainer_evaluate(struct cn_trainer *trainer, const struct cn_batch *batch,
                           struct cn_metrics *metrics);
