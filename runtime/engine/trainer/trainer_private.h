// trainer_private.h - what the trainer*.c files share.
#pragma once

#include "runtime/engine/program/bucket_plan.h"
#include "runtime/engine/program/gradient_order.h"
#include "runtime/engine/program/program.h"
#include "runtime/engine/trainer/batch_facts.h"
#include "runtime/engine/trainer/schedule.h"
#include "runtime/engine/trainer/trainer.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/engine/trainer/trainer_shards.h"
#include "runtime/engine/trainer/trainer_state.h"

// Rows of one class in an evaluation, for F1.
struct class_counts {
    uint64_t right, given, wanted;
};

// A part of the backward pass, and the gradients that it completes.
struct bucket {
    struct cn_compute_program *train, *sum; // the part's calls; the sum over its lanes
    size_t first, count;                    // words in gradient order
    float *data;                            // host view; set while accumulate_last runs
};

// State of a trainer that holds gradients, and in stage 3 weights, one bucket at a time.
struct sharded {
    struct cn_bucket_plan plan;                          // zeros in stage 1
    struct cn_compute_program **train;                   // owned; by slot, then by segment
    struct cn_compute_program **evaluate;                // owned; by segment
    struct cn_compute_program *sums[CN_TRAINER_BUCKETS]; // by bucket: adds up its lanes
    const float *lent;             // stage 3: row of weights for evaluations, borrowed; NULL: none
    float *copies[CN_ARENA_COUNT]; // owned; see cn_trainer_show
};

// A micro-batch between its forward and its backward pass.
struct filled_slot {
    bool filled;
    uint32_t samples;
    uint64_t first_sample; // its number in the run
};

// A value of a message.
struct boundary_value {
    size_t place; // words before it in the boundary arena, in slot 0
    size_t words; // words of one sample
};

struct boundary_message {
    struct boundary_value *values; // owned
    size_t count, words;           // values; words of one sample
};

// State of a trainer that holds a part of a model.
struct model_part {
    uint32_t slot_count; // 0: the trainer holds the whole model
    uint32_t index;      // number of the part
    size_t *tensors;     // owned; by tensor of the layout: its index in the whole layout
    uint32_t *holders;   // owned; by tensor of the layout: parts that hold it
    struct cn_cut_message cut_messages[CN_BOUNDARY_COUNT]; // owned; emptied by prepare
    uint64_t copies;                                       // cn_trainer_plan.copies
    uint64_t kept;                                         // cn_trainer_plan.messages
    struct boundary_message messages[CN_BOUNDARY_COUNT];
    struct cn_program_slot arenas[CN_ARENA_COUNT];
    struct filled_slot *slots;                       // owned
    struct cn_compute_program **forward, **backward; // owned; by slot; NULL entries have no calls
    bool begun;                                      // a micro-batch of this step ran forward
};

struct cn_trainer {
    const struct cn_compute_ops *ops;
    struct cn_compute *device;
    uint32_t batch;
    enum cn_loss loss;
    struct cn_rules rules;
    double learning_rate;
    double rate_scale;
    uint64_t steps;   // length of the run
    uint64_t step;    // number of the next step in the schedule
    uint64_t updates; // updates in the optimizer's state
    struct cn_schedule_powers powers;
    struct cn_hyper hyper; // constants of the run, first_sample, and a loss_scale still to be set
    struct cn_loss_scale loss_scale; // as of the last step
    struct cn_layout layout;
    struct cn_sample_shape shape;
    size_t input_words[CN_INPUT_MAX], label_words; // words of one sample
    size_t sample_words;                           // words of all inputs of a sample
    size_t inputs[CN_INPUT_MAX];                   // words before each input in the batch arena
    bool input_read[CN_INPUT_MAX];                 // the model, or this part of it, reads the input
    bool has_loss;                                 // false in all parts of a model except the last
    size_t label_input;                            // 1 + the input that has labels; 0: none
    size_t label_limit;                            // labels of label_input are below this
    int32_t label_ignored;                         // label of label_input that does not count
    struct cn_batch_facts facts;
    size_t labels;                // words before the labels in the batch arena
    double flops[2];              // for one sample: forward, whole step
    struct cn_call *calls;        // owned; the batch calls of a step
    size_t call_count, loss_call; // number of calls; index of the loss call
    struct cn_gradient_order order;
    struct bucket buckets[CN_TRAINER_BUCKETS];
    uint32_t bucket_count;
    struct class_counts *classes; // owned; NULL without classes
    struct cn_call *flat;         // owned; all calls of apply, before shares are cut out
    size_t flat_count;
    enum cn_stage stage;
    uint32_t shards;
    size_t state_count, state_room; // values of this member's share, and of the largest share
    struct cn_trainer_piece pieces[CN_TRAINER_BUCKETS]; // the share
    size_t piece_at[CN_TRAINER_BUCKETS];                // values before each piece in the share
    uint32_t piece_count;
    size_t gradient_room; // words of CN_ARENA_GRADIENTS
    struct sharded sharded;
    struct model_part part;
    struct cn_trainer_plan plan;
    struct cn_trainer_need needs[CN_STAGE_WEIGHTS]; // by stage - 1
    bool clipped;                                   // share_clip has scaled the share
    bool fresh;                                     // nothing was accumulated in this step
    bool summed;                                    // the first lane holds the whole gradient
    bool mapped;                                    // the gradient is shown to the host
    struct cn_compute_program *train, *evaluate, *sum, *apply;
};

// Finds a program within the memory limit: first as it is, then with activations computed again,
// then with micro-batches in pieces. Fills in trainer->plan, trainer->needs and sharded.plan. The
// caller frees program. CN_ENOMEM with a line in diag when no program fits.
cn_err cn_trainer_fit(struct cn_trainer *trainer, const struct cn_trainer_config *config,
                      const struct cn_graph *graph, struct cn_diag *diag,
                      struct cn_program *program);

// Copies values to the start of an arena; NULL writes zeros.
cn_err cn_trainer_write(struct cn_trainer *trainer, enum cn_arena arena, const float *values,
                        size_t count);

// Prepares the program that adds up the lanes' gradients in a range of words; a count of 0 is all.
cn_err cn_trainer_prepare_sum(struct cn_trainer *trainer, size_t first, size_t count,
                              struct cn_compute_program **program);

// Runs the staged batch as cn_trainer_accumulate_last says.
cn_err cn_trainer_run_buckets(struct cn_trainer *trainer, const struct cn_hyper *hyper,
                              const struct cn_trainer_sink *sink);

void cn_trainer_release_buckets(struct cn_trainer *trainer);

// Reads the outputs of an evaluated batch, and adds to metrics what they say beyond the loss.
cn_err cn_trainer_score(struct cn_trainer *trainer, const struct cn_batch *batch,
                        struct cn_metrics *metrics);

// Copy between a whole row in layout order and this member's share.
void cn_trainer_row_to_share(const struct cn_trainer *trainer, const float *row, float *share);
void cn_trainer_share_to_row(const struct cn_trainer *trainer, const float *share, float *row);

// Copy between the values [first, first + count) of a row and optimizer state that is not sharded.
// Values without state become 0 in the part.
void cn_trainer_state_to_row(const struct cn_trainer *trainer, const float *state, size_t first,
                             size_t count, float *part);
void cn_trainer_row_to_state(const struct cn_trainer *trainer, const float *part, size_t first,
                             size_t count, float *state);

// Copies a bucket's piece from the share to its place in slot, which holds the whole bucket.
void cn_trainer_copy_piece(const struct cn_trainer *trainer, uint32_t bucket, const float *share,
                           float *slot);

// Prepare a program for each segment of a step, of a part in each slot, and for each segment up to
// the loss for evaluations.
cn_err cn_trainer_prepare_segments(struct cn_trainer *trainer, const struct cn_program *program);
cn_err cn_trainer_prepare_forward(struct cn_trainer *trainer, const struct cn_call *calls);
void cn_trainer_release_segments(struct cn_trainer *trainer);

// Segments that run one after the other.
struct cn_segment_run {
    uint32_t slot;   // of a part; else 0
    size_t from, to; // segments
    const struct cn_trainer_exchange *exchange;
    bool last; // as cn_trainer_accumulate_shared says
};

// Runs segments of the staged batch; hyper is NULL without a batch.
cn_err cn_trainer_run_segments(struct cn_trainer *trainer, const struct cn_segment_run *run,
                               const struct cn_hyper *hyper);

// Runs the staged batch forward with the lent weights, in stage 3. CN_EINVAL when none were lent.
cn_err cn_trainer_run_forward(struct cn_trainer *trainer, const struct cn_hyper *hyper);

// Copy this member's weights to and from a whole row, and set its base, with CN_STAGE_WEIGHTS.
cn_err cn_trainer_get_own(struct cn_trainer *trainer, float *row);
cn_err cn_trainer_set_own(struct cn_trainer *trainer, const float *row);
cn_err cn_trainer_set_shared_base(struct cn_trainer *trainer, const float *row);

// Show an arena to the host during a pass, from CN_STAGE_GRADIENTS on: the arena itself where the
// device allows that (cn_compute.host_memory), else a copy. pull copies a part of the arena into
// the copy, push copies it back. Without a copy they do nothing. No run may be going on meanwhile.
cn_err cn_trainer_show(struct cn_trainer *trainer, enum cn_arena arena, float **host);
cn_err cn_trainer_pull(struct cn_trainer *trainer, enum cn_arena arena, size_t first, size_t count);
cn_err cn_trainer_push(struct cn_trainer *trainer, enum cn_arena arena, size_t first, size_t count);

// Allocates the copies that the trainer's stage needs, for arenas of these sizes. CN_ENOMEM.
cn_err cn_trainer_take_copies(struct cn_trainer *trainer, const struct cn_compute_sizes *sizes);
void cn_trainer_release_copies(struct cn_trainer *trainer);

// Returns the bytes of the copies that a stage needs.
uint64_t cn_trainer_copies(const struct cn_trainer *trainer, enum cn_stage stage,
                           const struct cn_compute_sizes *sizes);

// Copies a batch to the arena for batches, in a slot.
cn_err cn_trainer_stage_batch(struct cn_trainer *trainer, const struct cn_batch *batch,
                              uint32_t slot);

// Checks the labels of a whole batch and computes its facts. CN_ERANGE as accumulate.
cn_err cn_trainer_look_at(struct cn_trainer *trainer, const struct cn_batch *batch);

// Waits for the device, and adds its result to metrics where the trainer has the loss. CN_EDIVERGED
// when the loss is not finite.
cn_err cn_trainer_take_result(struct cn_trainer *trainer, const struct cn_batch *batch,
                              struct cn_metrics *metrics);

// Takes back what cn_trainer_gradients lent.
cn_err cn_trainer_unmap_gradients(struct cn_trainer *trainer);

// Replaces the graph and the layout of the whole model by those of a part.
cn_err cn_trainer_take_part(struct cn_trainer *trainer, const struct cn_trainer_config *config,
                            struct cn_diag *diag, struct cn_graph *graph);

// Prepares the programs and messages of all slots.
cn_err cn_trainer_prepare_part(struct cn_trainer *trainer, const struct cn_graph *graph,
                               const struct cn_program *program);
void cn_trainer_release_part(struct cn_trainer *trainer);

// What a forward pass of a part does before and after its calls run.
cn_err cn_trainer_begin_forward(struct cn_trainer *trainer, uint32_t slot,
                                const struct cn_batch *batch, struct cn_hyper *hyper);
cn_err cn_trainer_end_forward(struct cn_trainer *trainer, uint32_t slot,
                              const struct cn_batch *batch, struct cn_metrics *metrics);

// Fills in the numbers for the backward pass of a slot.
void cn_trainer_begin_backward(const struct cn_trainer *trainer, uint32_t slot,
                               struct cn_hyper *hyper);

// Returns whether this part counts a tensor in a norm: of the parts that hold it the first.
bool cn_trainer_owns(const struct cn_trainer *trainer, size_t tensor);

// cn_trainer_share_squares, of a part: without the tensors that another part counts.
cn_err cn_trainer_part_squares(struct cn_trainer *trainer, double weight, double *squares);

// Refuses to divide more than the optimizer's state of a part, from stage 2 on, in a graph that
// normalizes over its batches: CN_ENOTSUP, with a line in diag.
cn_err cn_trainer_refuse_stage(const struct cn_graph *graph, uint32_t parts, uint32_t stage,
                               struct cn_diag *diag);

// Returns, by number of forward nodes, the work before that place. The caller frees it; NULL: no
// memory.
double *cn_trainer_sum_work(const struct cn_graph *graph);

// Forgets the micro-batches of a step.
void cn_trainer_empty_slots(struct cn_trainer *trainer);

// Returns the factor that scales a gradient to the limit of the rules; 1 where it is below. squares
// is the sum of squares of the whole gradient.
float cn_trainer_clip_factor(const struct cn_trainer *trainer, double squares);
