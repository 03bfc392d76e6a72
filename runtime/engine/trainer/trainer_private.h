// trainer_private.h - what the trainer*.c files share.
#pragma once

#include "runtime/engine/program/bucket_plan.h"
#include "runtime/engine/program/gradient_order.h"
#include "runtime/engine/program/program.h"
#include "runtime/engine/trainer/batch_facts.h"
#include "runtime/engine/trainer/schedule.h"
#include "runtime/engine/trainer/trainer.h"

// Rows of one class in an evaluation, for F1.
struct class_counts {
    uint64_t right, given, wanted;
};

// A part of the backward pass and the gradients that it completes.
struct bucket {
    struct cn_compute_program *train, *sum;
    size_t first, count; // words
    float *data;         // once the device showed it
};

// Of a trainer that has gradients, and weights, a bucket at a time.
struct sharded {
    struct cn_bucket_plan plan;                    // of no buckets: all of them are whole
    struct cn_compute_program **train, **evaluate; // owned; by segment
    struct cn_compute_program *sums[CN_TRAINER_BUCKETS];
    const float *lent;             // weights that an evaluation reads
    float *copies[CN_ARENA_COUNT]; // owned; see cn_trainer_show
};

struct cn_trainer {
    const struct cn_compute_ops *ops;
    struct cn_compute *device;
    uint32_t batch;
    enum cn_loss loss;
    struct cn_rules rules;
    double learning_rate;
    double rate_scale;
    uint64_t steps;   // of the run
    uint64_t step;    // the next one of the schedule
    uint64_t updates; // of the optimizer's state
    struct cn_schedule_powers powers;
    struct cn_hyper hyper; // what does not change, and the scale of the loss that is to be set
    struct cn_loss_scale loss_scale;
    struct cn_layout layout;
    struct cn_sample_shape shape;
    size_t input_words[CN_INPUT_MAX], label_words; // of a sample
    size_t sample_words;                           // of all inputs
    size_t inputs[CN_INPUT_MAX];                   // words before each in the batch arena
    size_t label_input;                            // 1 + the input that has labels; 0: none
    size_t label_limit;
    int32_t label_ignored;
    struct cn_batch_facts facts;
    size_t labels;         // words before the labels in the batch arena
    double flops[2];       // of a sample: forward, step
    struct cn_call *calls; // owned; of a step
    size_t call_count, loss_call;
    struct cn_gradient_order order;
    struct bucket buckets[CN_TRAINER_BUCKETS];
    uint32_t bucket_count;
    struct class_counts *classes; // owned; NULL without classes
    struct cn_call *flat;         // owned; all calls of apply
    size_t flat_count;
    enum cn_stage stage;
    uint32_t shards;
    size_t state_count, state_room; // values whose optimizer state is here, and may be
    struct cn_trainer_piece pieces[CN_TRAINER_BUCKETS];
    size_t piece_at[CN_TRAINER_BUCKETS]; // values before each in the share
    uint32_t piece_count;
    size_t gradient_room; // words of the arena
    struct sharded sharded;
    struct cn_trainer_plan plan;
    struct cn_trainer_need needs[CN_STAGE_WEIGHTS]; // by stage
    bool clipped;                                   // the share is scaled already
    bool fresh;                                     // nothing was accumulated in this step
    bool summed;                                    // the first lane holds the whole gradient
    bool mapped;                                    // the caller may have changed it
    struct cn_compute_program *train, *evaluate, *sum, *apply;
};

// Finds a program within the memory limit and says so in trainer->plan: as it is, with activations
// computed again, with smaller micro-batches.
cn_err cn_trainer_fit(struct cn_trainer *trainer, const struct cn_trainer_config *config,
                      const struct cn_graph *graph, struct cn_diag *diag,
                      struct cn_program *program);

// Copies values into an arena; NULL is zeros.
cn_err cn_trainer_write(struct cn_trainer *trainer, enum cn_arena arena, const float *values,
                        size_t count);

// Adds up a whole step's gradients of a range; 0 words are all.
cn_err cn_trainer_prepare_sum(struct cn_trainer *trainer, size_t first, size_t count,
                              struct cn_compute_program **program);

// Runs the staged batch as cn_trainer_accumulate_last says.
cn_err cn_trainer_run_buckets(struct cn_trainer *trainer, const struct cn_hyper *hyper,
                              const struct cn_trainer_sink *sink);

void cn_trainer_release_buckets(struct cn_trainer *trainer);

// Adds what a batch's outputs say beyond the loss.
cn_err cn_trainer_score(struct cn_trainer *trainer, const struct cn_batch *batch,
                        struct cn_metrics *metrics);

// A whole row to the places of this member's share and back; a piece of a share to its bucket.
void cn_trainer_row_to_share(const struct cn_trainer *trainer, const float *row, float *share);
void cn_trainer_share_to_row(const struct cn_trainer *trainer, const float *share, float *row);
// The same of a part of the row, and of the whole state: what it does not hold is zeros in the row.
void cn_trainer_state_to_row(const struct cn_trainer *trainer, const float *state, size_t first,
                             size_t count, float *part);
void cn_trainer_row_to_state(const struct cn_trainer *trainer, const float *part, size_t first,
                             size_t count, float *state);
void cn_trainer_copy_piece(const struct cn_trainer *trainer, uint32_t bucket, const float *share,
                           float *slot);

// The programs of the segments of a step, and of those up to the loss for an evaluation.
cn_err cn_trainer_prepare_segments(struct cn_trainer *trainer, const struct cn_call *calls);
cn_err cn_trainer_prepare_forward(struct cn_trainer *trainer, const struct cn_call *calls);
void cn_trainer_release_segments(struct cn_trainer *trainer);

// Runs the staged batch as cn_trainer_accumulate_shared says; without hyper there is none.
cn_err cn_trainer_run_shared(struct cn_trainer *trainer, const struct cn_hyper *hyper,
                             const struct cn_trainer_exchange *exchange, bool last);

// Runs the staged batch forward with weights that were lent. CN_EINVAL without.
cn_err cn_trainer_run_forward(struct cn_trainer *trainer, const struct cn_hyper *hyper);

// The weights that this member has of a row, with CN_STAGE_WEIGHTS.
cn_err cn_trainer_get_own(struct cn_trainer *trainer, float *row);
cn_err cn_trainer_set_own(struct cn_trainer *trainer, const float *row);
cn_err cn_trainer_set_shared_base(struct cn_trainer *trainer, const float *row);

// From CN_STAGE_GRADIENTS on, what the host works on while a pass goes on: the arena itself where
// the device allows that (cn_compute.host_memory), else a copy. pull brings a part of the arena
// into the copy, push sends it back; neither does anything without a copy, and no run goes on
// meanwhile.
cn_err cn_trainer_show(struct cn_trainer *trainer, enum cn_arena arena, float **host);
cn_err cn_trainer_pull(struct cn_trainer *trainer, enum cn_arena arena, size_t first, size_t count);
cn_err cn_trainer_push(struct cn_trainer *trainer, enum cn_arena arena, size_t first, size_t count);

// Memory for the copies, of arenas of these sizes.
cn_err cn_trainer_take_copies(struct cn_trainer *trainer, const struct cn_compute_sizes *sizes);
void cn_trainer_release_copies(struct cn_trainer *trainer);

// Bytes of the copies that a stage needs.
uint64_t cn_trainer_copies(const struct cn_trainer *trainer, enum cn_stage stage,
                           const struct cn_compute_sizes *sizes);
