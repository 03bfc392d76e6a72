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
// Rows: weights and optimizer state are rows of float32 in layout order (cn_trainer_layout). The
// gradient has an order of its own, the gradient order (cn_trainer_gradient_place).
//
// Shards: members may hold one model together (ZeRO, arXiv:1910.02054). Each then holds a share: of
// the optimizer's state in stage 1, of the gradient too in stage 2, of the weights too in stage 3.
// Everything else is whole on each member. The stage decides which calls are allowed. In this table
// the names lack cn_trainer_, "whole" is the whole row, and "-" is a call that must not be made:
//
//                                        no shards    stage 1      stage 2      stage 3
//   set_share                            not needed   needed       needed       needed
//   accumulate, accumulate_last          yes          yes          -            -
//   gradients, time_ops                  yes          yes          -            -
//   set_buckets                          yes          no effect    no effect    no effect
//   accumulate_shared                    -            -            yes          yes
//   share, share_squares, share_clip     -            -            yes          yes
//   apply looks for values not finite    yes          yes          no: caller   no: caller
//   find_fault names                     a tensor     a tensor     "a share"    "a share"
//   get/set_weights, set_base            whole        whole        whole        share
//   get/set_optimizer, get/set_second    whole        share        share        share
//   share_weights, return_weights        yes          yes          yes          -
//   lend_weights                         sets them    sets them    sets them    lends them
//   evaluate                             yes          yes          yes          lent weights only
//   show_row, hide_row, get/put_part     yes          -            -            -
//
// All other calls are allowed everywhere. A trainer without shards is in stage 1 with one share.
//
// Parts: members may hold one part of the model each (cn_trainer_config.cut). Such a trainer has
// the layout of its part, and forward and backward in place of accumulate. It has no shards.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/data/dataset.h"
#include "runtime/engine/graph/cut.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/program/recompute.h"
#include "runtime/port/compute.h"

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

    // Returns the bytes that the caller takes beside the arenas while a version of the model
    // arrives; they count against memory_limit. NULL: none arrives.
    uint64_t (*arriving)(const struct cn_layout *layout);

    uint32_t shards; // members that hold the model together; 0 or 1: no shards
    uint32_t stage;  // ZeRO stage, 1 to 3; 0 is 1; ignored without shards
    bool weighs;     // find out what each stage would need, for cn_trainer_needs

    const struct cn_cut *cut; // NULL: the whole model; else this trainer holds one part of it
    uint32_t part;            // number of the part
    uint32_t slots;           // with a cut: most micro-batches between forward and backward; 0 is 1
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

// Returns a sum of losses: divided by metrics->rows it gives the mean, loss / weight.
double cn_metrics_row_loss(const struct cn_metrics *metrics);

struct cn_trainer;

// Imports the model, plans the memory and takes it. onnx is borrowed for the trainer's life.
// CN_ENOTSUP with one line in diag for each unsupported op or unknown train.freeze pattern, and for
// a cut with shards or float16; CN_ENOMEM with a line when no plan keeps config->memory_limit;
// CN_EINVAL for a batch of 0, and for a cut that cn_cut_check refuses.
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
    uint64_t bytes;    // planned in all: weights, gradients, optimizer state, activations, arriving
    uint64_t arriving; // of bytes: what cn_trainer_config.arriving returned
    enum cn_recompute recompute;
    uint32_t batch; // samples of a piece
};

const struct cn_trainer_plan *cn_trainer_plan(const struct cn_trainer *trainer);

// Bytes that a step takes when nothing is computed twice, whatever the limit.
struct cn_trainer_need {
    uint64_t whole;  // bytes on each member
    uint64_t shared; // bytes divided among the members that hold the model together
};

// Returns the need of a stage, 1 to 3. Zeros without cn_trainer_config.weighs.
struct cn_trainer_need cn_trainer_needs(const struct cn_trainer *trainer, uint32_t stage);

// Copies weights and optimizer state (momentum) to or from host memory: rows in layout order, of
// layout->total floats. Where this member holds a share, get fills in only the values of the share
// and leaves the rest of the row as it is; set takes only those. Optimizer state exists only for
// values with a gradient. Weights without a gradient are whole on each member, in stage 3 too.
// Setting weights ends a loan (cn_trainer_lend_weights).
cn_err cn_trainer_get_weights(struct cn_trainer *trainer, float *weights);
cn_err cn_trainer_set_weights(struct cn_trainer *trainer, const float *weights);
cn_err cn_trainer_get_optimizer(struct cn_trainer *trainer, float *state);
cn_err cn_trainer_set_optimizer(struct cn_trainer *trainer, const float *state); // NULL: zero

// A range of words in gradient order, within a bucket. With shards the buckets are fixed, and a
// share has one piece of each bucket, in the order of the buckets; a piece may be empty.
struct cn_trainer_piece {
    size_t first, count;
};

// Makes the pieces this member's share: apply then changes only the values whose gradients lie in
// them, and optimizer state is held for these values alone, in stage 3 weights too. What is held as
// a share is undefined until it is set. CN_ERANGE when the pieces are more than one share of
// cn_trainer_config.shards, or more than CN_TRAINER_BUCKETS.
cn_err cn_trainer_set_share(struct cn_trainer *trainer, const struct cn_trainer_piece *pieces,
                            uint32_t count);

// Returns the ZeRO stage; 1 without shards.
uint32_t cn_trainer_stage(const struct cn_trainer *trainer);

// Lends the gradients' memory as scratch space for one bucket, the largest included. Allowed
// between steps only; call discard before the next step, to clear it.
cn_err cn_trainer_lend_bucket(struct cn_trainer *trainer, float **room);

// Returns the bytes that this member holds for the optimizer's state.
uint64_t cn_trainer_state_memory(const struct cn_trainer *trainer);

// Copy the values whose gradients are the words [first, first + count) between a row in layout
// order and a part in gradient order. Words of the part without a value become 0; values of the row
// without a gradient there are left alone.
void cn_trainer_to_gradient_order(const struct cn_trainer *trainer, const float *row, size_t first,
                                  size_t count, float *part);
void cn_trainer_from_gradient_order(const struct cn_trainer *trainer, const float *part,
                                    size_t first, size_t count, float *row);

// Makes evaluations read a whole row of weights. In stage 3 the row is borrowed until the weights
// are set or NULL is lent, and this member's share is taken from it. In the other stages this sets
// the weights. NULL changes no weights.
cn_err cn_trainer_lend_weights(struct cn_trainer *trainer, const float *weights);

// The rows of a trainer's state.
enum cn_trainer_row {
    CN_TRAINER_WEIGHTS,
    CN_TRAINER_BASE,      // see cn_trainer_set_base
    CN_TRAINER_OPTIMIZER, // momentum
    CN_TRAINER_SECOND,    // second moment
    CN_TRAINER_ROWS       // the number of rows
};

// Returns whether the trainer holds this row: BASE needs a proximal term, SECOND an Adam optimizer.
bool cn_trainer_has_row(const struct cn_trainer *trainer, enum cn_trainer_row row);

// Shows a row of the trainer's state to the host without copying it. Until hide_row make no other
// call on this trainer, except get_part and put_part. The view's order is the trainer's own.
cn_err cn_trainer_show_row(struct cn_trainer *trainer, enum cn_trainer_row row, float **view);
cn_err cn_trainer_hide_row(struct cn_trainer *trainer, enum cn_trainer_row row);

// Copy the values [first, first + count) in layout order between a shown view and a part. In
// OPTIMIZER and SECOND a value that the optimizer does not train reads as 0, and is not written.
void cn_trainer_get_part(const struct cn_trainer *trainer, enum cn_trainer_row row,
                         const float *view, size_t first, size_t count, float *part);
void cn_trainer_put_part(const struct cn_trainer *trainer, enum cn_trainer_row row,
                         const float *part, size_t first, size_t count, float *view);

// Shows the weights to the host, which may change them until cn_trainer_return_weights. Do not
// accumulate, evaluate or apply meanwhile.
cn_err cn_trainer_share_weights(struct cn_trainer *trainer, float **weights);
cn_err cn_trainer_return_weights(struct cn_trainer *trainer);

// Returns whether the optimizer has a second moment (Adam, AdamW).
bool cn_trainer_has_second(const struct cn_trainer *trainer);

// Copy the second moment, as get_optimizer and set_optimizer do. Only where there is one.
cn_err cn_trainer_get_second(struct cn_trainer *trainer, float *state);
cn_err cn_trainer_set_second(struct cn_trainer *trainer, const float *state); // NULL: zero

// Sets the weights that the proximal term pulls to; without such a term it does nothing.
cn_err cn_trainer_set_base(struct cn_trainer *trainer, const float *weights);

// Sets the number of the next step in the schedule, and the number of updates in the optimizer's
// state (Adam's t). Both start at 0. Each step that is applied adds 1 to both; a float16 step that
// is dropped for overflow adds 1 to the step only.
void cn_trainer_set_step(struct cn_trainer *trainer, uint64_t step, uint64_t updates);
uint64_t cn_trainer_updates(const struct cn_trainer *trainer);

// The scale of the loss that the next step starts with: float16 only, zeros elsewhere. Setting
// zeros leaves the device's scale as it is.
struct cn_loss_scale cn_trainer_loss_scale(const struct cn_trainer *trainer);
void cn_trainer_set_loss_scale(struct cn_trainer *trainer, struct cn_loss_scale scale);

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

// Returns the number of words of the gradient. Gradient order is the order in which the backward
// pass finishes them; it is the same on all boards that train this model.
size_t cn_trainer_gradient_words(const struct cn_trainer *trainer);

// Returns the first word of the gradient of a tensor, by its index in the layout; SIZE_MAX when it
// has none.
size_t cn_trainer_gradient_place(const struct cn_trainer *trainer, size_t tensor);

// Shows the step's gradient to the host, in gradient order, until the next accumulate, apply or
// discard. The caller may change it in place, as a reduction does.
cn_err cn_trainer_gradients(struct cn_trainer *trainer, float **gradients);

#define CN_TRAINER_BUCKETS 64 // most buckets of a trainer

// Divides the gradient into at most CN_TRAINER_BUCKETS buckets, contiguous ranges in gradient
// order, of at least `words` words each. Open leaves one bucket. With shards the buckets are fixed
// and do not change. Call it between steps: it takes memory. After an error there is one bucket.
cn_err cn_trainer_set_buckets(struct cn_trainer *trainer, size_t words);
uint32_t cn_trainer_bucket_count(const struct cn_trainer *trainer);
size_t cn_trainer_bucket_words(const struct cn_trainer *trainer, uint32_t bucket);

// Receives buckets while the backward pass is still running. The thread that called
// accumulate_last calls ready once for each bucket, in order. data holds the bucket's part of the
// step's gradient, and stays valid as the view of cn_trainer_gradients does.
struct cn_trainer_sink {
    void (*ready)(void *context, uint32_t bucket, float *data, size_t count);
    void *context;
};

// As accumulate, for the last micro-batch of a step: calls ready for each bucket. On CN_OK and on
// CN_EDIVERGED ready was called for all buckets; on other errors perhaps not. A NULL sink is
// allowed.
cn_err cn_trainer_accumulate_last(struct cn_trainer *trainer, const struct cn_batch *batch,
                                  struct cn_metrics *metrics, const struct cn_trainer_sink *sink);

// The kinds of exchange between members during a pass, in stages 2 and 3.
enum cn_exchange_kind {
    CN_EXCHANGE_GATHER,   // data: a bucket of weights; pieces of the other members are filled in
    CN_EXCHANGE_REDUCE,   // data: a bucket of gradients; this member's piece becomes the sum
    CN_EXCHANGE_REPLICAS, // data: this member's piece; it becomes the sum over the replicas
};

// Exchanges data with the other members. begin starts an exchange of count words at data and
// returns; end waits until the exchange of that ticket is done. All members that hold the model
// together make the same calls in the same order.
struct cn_trainer_exchange {
    cn_err (*begin)(void *context, enum cn_exchange_kind kind, uint32_t bucket, float *data,
                    size_t count, uint64_t *ticket);
    cn_err (*end)(void *context, uint64_t ticket);
    void *context;
};

// Runs one micro-batch in stages 2 and 3. Its gradient is reduced over the members, and this
// member's share of the sum is added to the step's share. last says whether it is the step's last
// micro-batch: then the share is also summed over the replicas. A member that has fewer
// micro-batches than the others passes a NULL batch. CN_ERANGE and CN_EDIVERGED as accumulate.
// After any other error exchanges may still be using the trainer's memory: the caller stops them
// before any other call on this trainer.
cn_err cn_trainer_accumulate_shared(struct cn_trainer *trainer, const struct cn_batch *batch,
                                    struct cn_metrics *metrics,
                                    const struct cn_trainer_exchange *exchange, bool last);

// Shows the gradient of this member's share to the host, in stages 2 and 3, until apply or discard.
// apply uses it as it is, so the caller checks that it is finite.
cn_err cn_trainer_share(struct cn_trainer *trainer, float **share, size_t *count);

// Clip the gradient in stages 2 and 3, where no member has all of it. share_squares returns the sum
// of squares of gradient / weight over this share. share_clip takes the sum over all shares,
// divides the share by weight and scales it to cn_rules.clip (formula: cn_hyper.clip), where 0 is
// no limit; apply then does not divide again. Call share_clip at most once in a step.
cn_err cn_trainer_share_squares(struct cn_trainer *trainer, double weight, double *squares);
cn_err cn_trainer_share_clip(struct cn_trainer *trainer, double weight, double squares);

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
// finite; all samples were evaluated then. CN_EINVAL in stage 3 without lent weights.
cn_err cn_trainer_evaluate(struct cn_trainer *trainer, const struct cn_batch *batch,
                           struct cn_metrics *metrics);

// Returns the number of classes with cross-entropy, and 0 with other losses.
size_t cn_trainer_classes(const struct cn_trainer *trainer);

// Copies three numbers for each class and clears them: the rows that were right, given (predicted)
// and wanted (labelled) in all evaluations since the last call. They may be summed over boards.
void cn_trainer_take_counts(struct cn_trainer *trainer, float *counts);

// Returns macro F1: the mean of 2 right / (given + wanted) over the classes given or wanted.
double cn_trainer_f1(const float *counts, size_t classes);

struct cn_trainer_op {
    const char *name; // the kind of op, static
    bool forward;     // false in the backward pass
    double us;        // start, after the first op's start
    double duration_us;
    double flops; // additions and multiplications for one sample
};

// Runs accumulate to warm up, then the calls of a step one by one, and reports each. At most
// cn_trainer_plan.batch samples are used. The gradient is useless afterwards: discard it.
cn_err cn_trainer_time_ops(struct cn_trainer *trainer, const struct cn_batch *batch,
                           void (*report)(void *context, const struct cn_trainer_op *op),
                           void *context);

// --- parts of a model ---

// Imports a model with its loss and its backward pass, as open does, so that a cut can be chosen.
// graph and layout are initialised; the caller deinits both. Errors as open.
cn_err cn_trainer_import(const struct cn_onnx *onnx, enum cn_loss loss,
                         const struct cn_rules *rules, struct cn_diag *diag,
                         struct cn_layout *layout, struct cn_graph *graph);

// A micro-batch passes through the parts in order, and its gradient back. Each part of a chain is
// given the same batches by the same numbers, and reads the inputs and labels that its nodes need.
// In a part: set_boundary INPUTS, forward, get_boundary OUTPUTS; later set_boundary
// OUTPUT_GRADIENTS, backward, get_boundary INPUT_GRADIENTS. The first part has no inputs, the last
// no outputs. Several micro-batches may be between forward and backward, each in a slot. The bits
// are those of the whole model if all parts run backward in the order of the micro-batches.
//
// After the last micro-batch: add up the gradients of tensors with several holders, clip, apply in
// all parts or in none. Evaluations use slot 0 in the same way, between steps: set_boundary INPUTS,
// evaluate, get_boundary OUTPUTS.

// Runs forward on one micro-batch, in an empty slot. The last part adds to metrics; the others
// leave metrics as it is. Errors as accumulate; after CN_EDIVERGED the slot holds the micro-batch.
cn_err cn_trainer_forward(struct cn_trainer *trainer, uint32_t slot, const struct cn_batch *batch,
                          struct cn_metrics *metrics);

// Runs backward on the micro-batch of a slot, adds its gradient to the step's, and empties the
// slot. A sink is given for the last micro-batch of a step: ready is then called for each bucket.
cn_err cn_trainer_backward(struct cn_trainer *trainer, uint32_t slot,
                           const struct cn_trainer_sink *sink);

// Returns the words of one sample in a message; 0 where there is none.
size_t cn_trainer_boundary_words(const struct cn_trainer *trainer, enum cn_boundary which);

// Copy a message of samples * boundary_words floats from or to a slot: value after value, sample
// after sample. Some words may be bits of int32.
cn_err cn_trainer_get_boundary(struct cn_trainer *trainer, uint32_t slot, enum cn_boundary which,
                               uint32_t samples, float *message);
cn_err cn_trainer_set_boundary(struct cn_trainer *trainer, uint32_t slot, enum cn_boundary which,
                               uint32_t samples, const float *message);

// Returns the parts that hold a tensor, by its index in the layout: bit p for part p. Its owner is
// the part of the lowest bit. 0 without a cut.
uint32_t cn_trainer_holders(const struct cn_trainer *trainer, size_t tensor);

// Returns the index in the layout of the whole model of a tensor of this part.
size_t cn_trainer_whole_tensor(const struct cn_trainer *trainer, size_t tensor);

// Clip the gradient of a model in parts. squares returns the sum of squares of gradient / weight
// over the tensors that this part owns; it is not finite if one of its gradients is not, and no
// part may apply then. clip takes the sum over all parts, divides the gradient by weight and scales
// it to cn_rules.clip (formula: cn_hyper.clip), where 0 is no limit; apply then does not divide
// again. Call clip at most once in a step, in all parts or in none.
cn_err cn_trainer_squares(struct cn_trainer *trainer, double weight, double *squares);
cn_err cn_trainer_clip(struct cn_trainer *trainer, double weight, double squares);
