// trainer.h - one model on one compute device: gradients, optimizer steps, evaluation.
//
// A step is: accumulate once for each micro-batch, let the group sum the gradients and the sample
// counts, then apply. Gradients are sums over samples (not means), so members with different batch
// sizes average correctly: apply divides by the samples of the whole step.
//
// Memory: open takes all of it, except the buckets' programs, which set_buckets takes. Steps
// allocate nothing. Each call returns when its work on the device is done. With the same inputs,
// thread count and device every call gives the same bits. Threading: one thread at a time.
//
// This header has what one board needs to train. Four others have the rest: trainer_state.h the
// weights and the optimizer's state, trainer_buckets.h the gradient and its buckets,
// trainer_shards.h a model that several members hold together, with a table of the calls that are
// allowed in each ZeRO stage, and trainer_parts.h a model that is cut into parts.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/data/dataset.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/program/recompute.h"
#include "runtime/port/compute.h"

struct cn_cut;

struct cn_trainer_config {
    const struct cn_compute_ops *compute;
    uint32_t device; // number of the device on a machine with several
    uint32_t threads;
    enum cn_precision precision; // CN_ENOTSUP, with a line in diag, where the device lacks it
    uint32_t batch; // samples of the largest micro-batch that accumulate and evaluate get
    enum cn_loss loss;
    float learning_rate, momentum, weight_decay;
    const struct cn_rules *rules; // copied; NULL for none
    uint64_t steps;               // length of the run, where a cosine schedule ends
    uint64_t seed;                // for random draws, see cn_trainer_draw
    uint64_t memory_limit;        // of cn_trainer_plan.bytes; 0 for no limit
    enum cn_recompute recompute;  // least that is computed again, whatever the limit
    uint64_t *least; // set where no plan keeps memory_limit: fewest bytes of a plan; NULL: unwanted

    // Returns the most bytes that the caller takes beside the arenas, for copies of the model; they
    // count against memory_limit. own is the layout of this trainer's part, or the whole model's.
    // NULL: none.
    uint64_t (*copies)(const void *context, const struct cn_layout *whole,
                       const struct cn_layout *own);
    const void *copies_context;

    uint32_t shards; // members that hold the model together; 0 or 1: no shards
    uint32_t stage;  // ZeRO stage, 1 to 3; 0 is 1; ignored without shards
    bool weighs;     // find out what each stage would need, for cn_trainer_needs

    const struct cn_cut *cut; // NULL: the whole model; else this trainer holds one part of it
    uint32_t part;            // number of the part
    uint32_t slots;           // with a cut: most micro-batches between forward and backward; 0 is 1

    // With a cut, by enum cn_boundary: number of messages that the caller keeps in memory, each of
    // the largest micro-batch. Their bytes count against memory_limit, and so do those of what the
    // caller sends with them.
    uint32_t messages[4];
    uint64_t beside_messages;
};

struct cn_metrics { // sums over samples
    double loss;
    uint64_t correct; // cross-entropy: rows whose largest output is the label
    uint64_t count;   // samples
    double weight;    // divisor of loss that gives the mean

    // Filled in by evaluate only. With binary entropy it also adds to correct the outputs on the
    // right side of 0.
    uint64_t rows;   // unit of correct: labels that count, outputs (binary entropy) or samples
    uint64_t top5;   // cross-entropy: rows whose label is among the five largest outputs
    double absolute; // losses with targets: sum of the absolute errors
    uint64_t values; // number of errors summed in absolute
};

// Returns the loss scaled so that divided by metrics->rows it gives the mean, loss / weight.
double cn_metrics_row_loss(const struct cn_metrics *metrics);

struct cn_trainer;

// Imports the model, plans the memory and takes it. onnx is borrowed for the trainer's life.
// CN_ENOTSUP with one line in diag for each unsupported op or unknown train.freeze pattern, and for
// a cut with float16; CN_ENOMEM with a line when no plan keeps config->memory_limit;
// CN_EINVAL for a batch of 0, and for a cut that cn_cut_check refuses or a part that it does not
// have.
cn_err cn_trainer_open(const struct cn_onnx *onnx, const struct cn_trainer_config *config,
                       struct cn_diag *diag, struct cn_trainer **trainer);
void cn_trainer_close(struct cn_trainer *trainer);

// Returns the layout of all rows; it belongs to the trainer.
const struct cn_layout *cn_trainer_layout(const struct cn_trainer *trainer);

// Fills in the shape of the samples that accumulate and evaluate expect.
void cn_trainer_sample_shape(const struct cn_trainer *trainer, struct cn_sample_shape *shape);

// Returns cn_trainer_plan.bytes.
uint64_t cn_trainer_memory(const struct cn_trainer *trainer);

// Returns the CUDA compute capability of the GPU that trains, times 10; 0 without a GPU.
uint32_t cn_trainer_capability(const struct cn_trainer *trainer);

// Returns the additions and multiplications for one sample, in a forward pass and in a whole step.
void cn_trainer_flops(const struct cn_trainer *trainer, double *forward, double *step);

// How the memory limit is kept: first by computing activations again, then by working on pieces of
// a micro-batch. Computing again changes no bit. Pieces change only the order of the sums in a
// gradient. There are no pieces for a model that normalizes over the batch, or in stages 2 and 3.
struct cn_trainer_plan {
    // Planned in all: weights, gradients, optimizer state, activations, copies, messages.
    uint64_t bytes;
    uint64_t copies;   // of bytes: what cn_trainer_config.copies returned
    uint64_t messages; // of bytes: those of cn_trainer_config.messages, and beside_messages
    enum cn_recompute recompute;
    uint32_t batch; // samples of a piece
    // In stage 3: bit per enum cn_recompute with which a step keeps the limit. The exchanges of a
    // pass follow from recompute, so members that hold the model together must have the same.
    uint32_t fitting;
};

const struct cn_trainer_plan *cn_trainer_plan(const struct cn_trainer *trainer);

// Bytes that a step takes when nothing is computed twice, whatever the limit.
struct cn_trainer_need {
    uint64_t whole;  // bytes on each member
    uint64_t shared; // bytes divided among the members that hold the model together
};

// Returns the need of a stage, 1 to 3. Zeros without cn_trainer_config.weighs.
struct cn_trainer_need cn_trainer_needs(const struct cn_trainer *trainer, uint32_t stage);

// Returns the learning rate of the next step.
float cn_trainer_rate(const struct cn_trainer *trainer);

// Sets the factor by which the schedule's rate is multiplied; it is 1 at first.
void cn_trainer_scale_rate(struct cn_trainer *trainer, double scale);

// Sets the sample number that the next batch starts with; 0 at first. Random draws such as Dropout
// are a function of (seed, sample number), so no two batches of a run should share numbers.
void cn_trainer_draw(struct cn_trainer *trainer, uint64_t first_sample);

// Runs forward and backward on one micro-batch. Adds its gradient to the step's and its loss to
// metrics. CN_ERANGE, before anything runs, for more samples than cn_trainer_config.batch or a
// label that is no class. CN_EDIVERGED when the loss is not finite: the step's gradient is then
// useless, the weights are intact.
cn_err cn_trainer_accumulate(struct cn_trainer *trainer, const struct cn_batch *batch,
                             struct cn_metrics *metrics);

// Makes one optimizer step with gradient / weight, then starts a new gradient. samples and weight
// are the sums of cn_metrics.count and cn_metrics.weight over the whole step, on all members.
// CN_EINVAL when samples is not above 0, weight is below 0, or one is not finite. CN_EDIVERGED when
// a gradient is not finite: weights and optimizer state are unchanged, and the gradient stays until
// discard. A float16 step whose scaled gradient overflowed is dropped without an error: the
// schedule advances, the weights stay. The arithmetic is described at struct cn_hyper.
cn_err cn_trainer_apply_weighted(struct cn_trainer *trainer, double samples, double weight);

// As apply_weighted, where every sample has the weight 1.
cn_err cn_trainer_apply(struct cn_trainer *trainer, double samples);

// Writes to text what is not finite, for a message: the first such tensor of the model, else the
// first such gradient, else the loss. Call it after CN_EDIVERGED and before discard. In stages 2
// and 3 it tells only this board's share from the loss.
cn_err cn_trainer_find_fault(struct cn_trainer *trainer, char *text, size_t size);

// Drops the gradient of the step, and starts a new one.
cn_err cn_trainer_discard(struct cn_trainer *trainer);

// Runs forward only, as an evaluation does: running statistics, no Dropout. Adds to metrics and to
// the counts of cn_trainer_take_counts. CN_ERANGE as accumulate. CN_EDIVERGED when a loss is not
// finite; all samples were evaluated then. CN_EINVAL in stage 3 without lent weights. CN_EIO when
// the outputs cannot be read from the device.
cn_err cn_trainer_evaluate(struct cn_trainer *trainer, const struct cn_batch *batch,
                           struct cn_metrics *metrics);

// Returns the number of classes with cross-entropy, and 0 with other losses.
size_t cn_trainer_classes(const struct cn_trainer *trainer);

// Copies three numbers for each class, class after class, and clears them: the rows that were
// right, given (predicted) and wanted (labelled) in all evaluations since the last call. counts has
// room for 3 * cn_trainer_classes numbers. They may be summed over boards.
void cn_trainer_take_counts(struct cn_trainer *trainer, float *counts);

// Returns macro F1: the mean of 2 right / (given + wanted) over the classes given or wanted.
double cn_trainer_f1(const float *counts, size_t classes);

struct cn_trainer_op {
    enum cn_op op;
    const char *name; // of op, static
    bool forward;     // false in the backward pass
    double us;        // start, after the first op's start
    double duration_us;
    double flops; // additions and multiplications for one sample
    double bytes; // of list_ops: moved for the whole piece, as cn_call_cost counts them
};

// Reports what one step would do, call by call and without running it: a piece of
// cn_trainer_plan.batch samples forward and backward, and, with forward false, the optimizer. Times
// are 0.
void cn_trainer_list_ops(const struct cn_trainer *trainer,
                         void (*report)(void *context, const struct cn_trainer_op *op),
                         void *context);

// Runs accumulate to warm up, then the calls of a step one by one, and reports each. At most
// cn_trainer_plan.batch samples are used. The gradient is useless afterwards: discard it.
cn_err cn_trainer_time_ops(struct cn_trainer *trainer, const struct cn_batch *batch,
                           void (*report)(void *context, const struct cn_trainer_op *op),
                           void *context);
