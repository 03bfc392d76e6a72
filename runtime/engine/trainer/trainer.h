// trainer.h - one model on one compute device: gradients, optimizer steps, evaluation.
//
// A step is: accumulate once for each micro-batch, let the group sum the gradients and the sample
// count, then apply. Gradients are sums over samples (not means), so members with different batch
// sizes average correctly: apply divides by the samples of the whole step.
// All memory is taken by open; steps allocate nothing. With the same inputs, thread count and
// device every call gives the same bits. Threading: one thread at a time.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/data/dataset.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/program/recompute.h"
#include "runtime/port/compute.h"

struct cn_trainer_config {
    const struct cn_compute_ops *compute;
    uint32_t device; // its number, where a machine may have several
    uint32_t threads;
    enum cn_precision precision; // CN_ENOTSUP, with a line in diag, where the device lacks it
    uint32_t batch; // samples of a micro-batch, the largest that accumulate and evaluate get
    enum cn_loss loss;
    float learning_rate, momentum, weight_decay;
    const struct cn_rules *rules; // NULL for none
    uint64_t steps;               // of the run, where a cosine schedule ends
    uint64_t seed;                // of what is drawn at random, see cn_trainer_draw
    uint64_t memory_limit;        // bytes for all arenas, see cn_trainer_plan; 0 for no limit
    uint32_t shards;              // room for one of so many shares of the optimizer's state; 0: all
    uint32_t stage; // of ZeRO, 1 to 3: with several shards there is room for a share of the
                    // gradients from 2 on, and of the weights with 3; 0 is 1
    bool weighs;    // find out what each stage would need, for cn_trainer_needs
};

struct cn_metrics { // sums over samples
    double loss;
    uint64_t correct; // cross-entropy: samples whose largest output is the label
    uint64_t count;   // samples
    double weight;    // what loss is to be divided by

    // Of evaluate only.
    uint64_t rows;   // what correct is counted in: labels that count, or samples
    uint64_t top5;   // cross-entropy: rows whose label is among the five largest outputs
    double absolute; // other losses: sum of the absolute errors
    uint64_t values; // so many
};

// A sum of losses that gives the mean, loss / weight, when it is divided by the rows.
double cn_metrics_row_loss(const struct cn_metrics *metrics);

struct cn_trainer;

// onnx is borrowed for the trainer's life. Unsupported ops come as one list in diag (CN_ENOTSUP).
cn_err cn_trainer_open(const struct cn_onnx *onnx, const struct cn_trainer_config *config,
                       struct cn_diag *diag, struct cn_trainer **trainer);
void cn_trainer_close(struct cn_trainer *trainer);

const struct cn_layout *cn_trainer_layout(const struct cn_trainer *trainer);
void cn_trainer_sample_shape(const struct cn_trainer *trainer, struct cn_sample_shape *shape);

// Bytes planned for weights, gradients, optimizer state, activations.
uint64_t cn_trainer_memory(const struct cn_trainer *trainer);

// Of the GPU that trains, times 10 (CUDA compute capability); 0 without one.
uint32_t cn_trainer_capability(const struct cn_trainer *trainer);

// Additions and multiplications for one sample: of the forward pass, and of a step.
void cn_trainer_flops(const struct cn_trainer *trainer, double *forward, double *step);

// How the memory limit is kept. Computing again changes no bit. Smaller micro-batches change the
// order of the sums in a gradient, no more; a model that normalizes over the batch refuses them.
struct cn_trainer_plan {
    uint64_t bytes;
    enum cn_recompute recompute;
    uint32_t batch; // samples that are worked on at a time
};

const struct cn_trainer_plan *cn_trainer_plan(const struct cn_trainer *trainer);

// Bytes that a step takes in a stage when nothing is computed twice, whatever the limit.
struct cn_trainer_need {
    uint64_t whole;  // on each member
    uint64_t shared; // of these each has its share
};

// Stage is 1 to 3. Zeros without cn_trainer_config.weighs.
struct cn_trainer_need cn_trainer_needs(const struct cn_trainer *trainer, uint32_t stage);

// Weights and optimizer state (momentum), layout order, total floats each, host memory. In stage 3
// get fills in the weights of this member's share and those without a gradient.
cn_err cn_trainer_get_weights(struct cn_trainer *trainer, float *weights);
cn_err cn_trainer_set_weights(struct cn_trainer *trainer, const float *weights);
cn_err cn_trainer_get_optimizer(struct cn_trainer *trainer, float *state);
cn_err cn_trainer_set_optimizer(struct cn_trainer *trainer, const float *state); // NULL: zero

// A part of the gradient's words, within a bucket. With several shards the buckets are fixed, and a
// share has a piece of each, in their order.
struct cn_trainer_piece {
    size_t first, count;
};

// From here on apply changes only the values whose gradients are in the pieces, and holds the
// optimizer's state for them alone; get and set of it use their places of a row. So it is with
// weights in stage 3. The state is undefined until it is set. CN_ERANGE for more than a share of
// cn_trainer_config.shards.
cn_err cn_trainer_set_share(struct cn_trainer *trainer, const struct cn_trainer_piece *pieces,
                            uint32_t count);

// The stage of ZeRO; 1 without shards.
uint32_t cn_trainer_stage(const struct cn_trainer *trainer);

// Between steps: room for the largest bucket, where gradients are; discard clears it.
cn_err cn_trainer_lend_bucket(struct cn_trainer *trainer, float **room);

// Bytes of the optimizer's state that is held.
uint64_t cn_trainer_state_memory(const struct cn_trainer *trainer);

// The values of a row whose gradients are [first, first + count), in the order of those, and back.
// Values without a gradient are left out, and left alone.
void cn_trainer_to_gradient_order(const struct cn_trainer *trainer, const float *row, size_t first,
                                  size_t count, float *part);
void cn_trainer_from_gradient_order(const struct cn_trainer *trainer, const float *part,
                                    size_t first, size_t count, float *row);

// Evaluations read these weights, borrowed until the weights are set again or NULL is lent. In
// stage 3 there is no other way to evaluate; in the others it is setting them.
cn_err cn_trainer_lend_weights(struct cn_trainer *trainer, const float *weights);

// The rows that a trainer holds, for who wants no copy of one: host views until they are hidden
// again, and no other call meanwhile. Parts of a row are in the layout's order, whatever the view's
// is; a value that the optimizer does not train is zero in its rows. Not with several shards.
enum cn_trainer_row {
    CN_TRAINER_WEIGHTS,
    CN_TRAINER_BASE,
    CN_TRAINER_OPTIMIZER,
    CN_TRAINER_SECOND,
    CN_TRAINER_ROWS
};

bool cn_trainer_has_row(const struct cn_trainer *trainer, enum cn_trainer_row row);
cn_err cn_trainer_show_row(struct cn_trainer *trainer, enum cn_trainer_row row, float **view);
cn_err cn_trainer_hide_row(struct cn_trainer *trainer, enum cn_trainer_row row);
void cn_trainer_get_part(const struct cn_trainer *trainer, enum cn_trainer_row row,
                         const float *view, size_t first, size_t count, float *part);
void cn_trainer_put_part(const struct cn_trainer *trainer, enum cn_trainer_row row,
                         const float *part, size_t first, size_t count, float *view);

// Host view of the weights until the next call here; not in stage 3. The caller may change them.
cn_err cn_trainer_share_weights(struct cn_trainer *trainer, float **weights);
cn_err cn_trainer_return_weights(struct cn_trainer *trainer);

// The second moment, where the optimizer has one.
bool cn_trainer_has_second(const struct cn_trainer *trainer);
cn_err cn_trainer_get_second(struct cn_trainer *trainer, float *state);
cn_err cn_trainer_set_second(struct cn_trainer *trainer, const float *state); // NULL: zero

// The weights that the proximal term pulls to; nothing without one.
cn_err cn_trainer_set_base(struct cn_trainer *trainer, const float *weights);

// The next step is this one of the schedule, and the optimizer's state has seen so many updates.
// Both start at 0 and count up with each step that is applied.
void cn_trainer_set_step(struct cn_trainer *trainer, uint64_t step, uint64_t updates);
uint64_t cn_trainer_updates(const struct cn_trainer *trainer);

// Of float16, what the next step starts with; zeros elsewhere. Zeros set nothing.
struct cn_loss_scale cn_trainer_loss_scale(const struct cn_trainer *trainer);
void cn_trainer_set_loss_scale(struct cn_trainer *trainer, struct cn_loss_scale scale);

float cn_trainer_rate(const struct cn_trainer *trainer); // of the next step

// The rate of the schedule is multiplied by this, 1 at first.
void cn_trainer_scale_rate(struct cn_trainer *trainer, double scale);

// Dropout draws from (seed, number of the sample): the next batch starts with sample number
// first_sample, which no other batch of the run should share. 0 when this is never called.
void cn_trainer_draw(struct cn_trainer *trainer, uint64_t first_sample);

// Forward and backward on one micro-batch; adds its gradient to the step's and its loss to metrics.
// CN_EDIVERGED when the loss is not finite: the step's gradient is then useless, the weights
// intact.
cn_err cn_trainer_accumulate(struct cn_trainer *trainer, const struct cn_batch *batch,
                             struct cn_metrics *metrics);

// Gradients lie in the order in which the backward pass finishes them, the same for all boards that
// train this model: so many words. A bucket is a contiguous part of them.
size_t cn_trainer_gradient_words(const struct cn_trainer *trainer);

// Where the gradient of a tensor of the layout begins; SIZE_MAX when it has none.
size_t cn_trainer_gradient_place(const struct cn_trainer *trainer, size_t tensor);

// Host view of the step's gradient, valid until apply. The caller may reduce in place.
cn_err cn_trainer_gradients(struct cn_trainer *trainer, float **gradients);

#define CN_TRAINER_BUCKETS 64

// Cuts the gradients into buckets of at least so many words, but for the last one, and at most
// CN_TRAINER_BUCKETS; where there are shards they stay as they are. Takes memory; not within a
// step. Open leaves one bucket of all.
cn_err cn_trainer_set_buckets(struct cn_trainer *trainer, size_t words);
uint32_t cn_trainer_bucket_count(const struct cn_trainer *trainer);
size_t cn_trainer_bucket_words(const struct cn_trainer *trainer, uint32_t bucket);

// Who takes buckets. ready is called in the order of the buckets, by the caller's thread: bucket
// holds the step's whole gradient, as cn_trainer_gradients shows it, while the backward pass goes
// on.
struct cn_trainer_sink {
    void (*ready)(void *context, uint32_t bucket, float *data, size_t count);
    void *context;
};

// As accumulate, of the last micro-batch of a step. Unless an error but CN_EDIVERGED is returned,
// ready was called for all buckets.
cn_err cn_trainer_accumulate_last(struct cn_trainer *trainer, const struct cn_batch *batch,
                                  struct cn_metrics *metrics, const struct cn_trainer_sink *sink);

// From stage 2 on: who brings the members' data together while a pass goes on. begin starts it and
// returns; end waits until it is done. All members that hold the model together call the same.
enum cn_exchange_kind {
    CN_EXCHANGE_GATHER,   // data is a bucket of weights with this member's piece: the others come
    CN_EXCHANGE_REDUCE,   // data is a bucket of gradients: this member's piece becomes the sum
    CN_EXCHANGE_REPLICAS, // data is this member's piece: it becomes the sum over the replicas
};

struct cn_trainer_exchange {
    cn_err (*begin)(void *context, enum cn_exchange_kind kind, uint32_t bucket, float *data,
                    size_t count, uint64_t *ticket);
    cn_err (*end)(void *context, uint64_t ticket);
    void *context;
};

// From stage 2 on, in place of accumulate: each micro-batch's gradient is reduced, and the sum is
// added to this member's share; last says whether it is the step's last one. A member that has
// fewer micro-batches than the others passes NULL. After an error of the exchange it must be ended
// before anything else is done here.
cn_err cn_trainer_accumulate_shared(struct cn_trainer *trainer, const struct cn_batch *batch,
                                    struct cn_metrics *metrics,
                                    const struct cn_trainer_exchange *exchange, bool last);

// From stage 2 on: host view of the share's gradient until apply, which takes it as it is. Whether
// it is finite is for the caller to see.
cn_err cn_trainer_share(struct cn_trainer *trainer, float **share, size_t *count);

// From stage 2 on: what clipping does (struct cn_hyper), in two halves. squares are those of the
// share's part; their sum over all shares gives norm, by which clip scales the share.
cn_err cn_trainer_share_squares(struct cn_trainer *trainer, double weight, double *squares);
cn_err cn_trainer_share_clip(struct cn_trainer *trainer, double weight, double squares);

// One optimizer step with gradient / weight, then clears the gradient; weight is the sum of
// cn_metrics.weight over the step, samples that of count. CN_EDIVERGED when a gradient is not
// finite: weights and optimizer state are unchanged, and the gradient stays until discard. With
// float16 a step whose scaled gradient overflowed is dropped, which is no error: the schedule goes
// on, the weights stay. The arithmetic is that of struct cn_hyper.
cn_err cn_trainer_apply_weighted(struct cn_trainer *trainer, double samples, double weight);

// The same where every sample has the weight 1.
cn_err cn_trainer_apply(struct cn_trainer *trainer, double samples);

// After CN_EDIVERGED, before discard: names the first tensor of the model that is not finite, or
// else the first gradient, or else the loss.
cn_err cn_trainer_find_fault(struct cn_trainer *trainer, char *text, size_t size);

// Drops what accumulate added.
cn_err cn_trainer_discard(struct cn_trainer *trainer);

// Forward only; adds to metrics.
cn_err cn_trainer_evaluate(struct cn_trainer *trainer, const struct cn_batch *batch,
                           struct cn_metrics *metrics);

// Cross-entropy: how many rows of each class were right, given and wanted, three numbers a class,
// of everything that was evaluated since the last call. They may be summed over boards.
size_t cn_trainer_classes(const struct cn_trainer *trainer); // 0 for other losses
void cn_trainer_take_counts(struct cn_trainer *trainer, float *counts);

// The mean of F1, 2 right / (given + wanted), over the classes that were given or wanted.
double cn_trainer_f1(const float *counts, size_t classes);

struct cn_trainer_op {
    const char *name; // of the kind of op
    bool forward;     // else it belongs to the backward pass
    double us;        // from the beginning
    double duration_us;
    double flops; // of a sample
};

// Runs a step's calls one by one, after those of accumulate, and reports each. The step's gradient
// is useless afterwards: discard it.
cn_err cn_trainer_time_ops(struct cn_trainer *trainer, const struct cn_batch *batch,
                           void (*report)(void *context, const struct cn_trainer_op *op),
                           void *context);
