// session_private.h - what the files of a session share. Private to runtime/round/session.
//
// session_reduce.h is the header of the reducer, which a session uses.
#pragma once

#include "runtime/engine/data/reader.h"
#include "runtime/engine/program/bucket_plan.h"
#include "runtime/engine/trainer/trainer_shards.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/group/auto_layout.h"
#include "runtime/group/balance.h"
#include "runtime/profile/set_rules.h"
#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/session/session.h"
#include "runtime/round/session/session_reduce.h"

// How a step is trained: decided alike on all members before the step (session_sets.c).
struct cn_step_plan {
    bool whole;          // every member trains
    bool trains;         // this board trains
    struct cn_set train; // members that train; unused if whole
    uint32_t micro;      // micro-batches of this board
    // Micro-batches of the boards before this one, by dp_rank (runtime/group/ranks.h).
    uint32_t before;
    uint32_t total;  // micro-batches of all boards
    uint32_t shards; // members that hold the model's state together; 1: each holds all of it
    // ZeRO stage: parts that the shards divide (runtime/engine/program/bucket_plan.h).
    uint32_t stage;
    uint32_t shard;               // index of this board's shard
    struct cn_set shard_set;      // members whose shares make up the whole state
    struct cn_set replica_set;    // members that hold the same share
    uint32_t place;               // place of this board among the members that train
    uint32_t seats[CN_GROUP_MAX]; // by place: index in the profile's list
    char names[128]; // names of the members that train, for people; "" if the job names no set
};

// Counts that add up over steps.
struct cn_session_counts {
    uint64_t samples, cursor;
    double train_loss;
};

// A step whose gradients are reduced over the group.
struct cn_reduced_step {
    uint64_t epoch; // epoch of the step; 0: no step
    uint32_t round, step;
    float votes[CN_STEP_VOTES]; // sums of the votes, for a step that was applied
};

// What all members know of each other in an epoch, and what follows from it.
struct cn_session_sets {
    struct cn_view view;
    struct cn_board_facts facts[CN_GROUP_MAX];     // facts by rank
    char addresses[CN_GROUP_MAX][CN_ADDRESS_SIZE]; // addresses by rank, as others know them
    struct cn_set_rules rules;
    bool by_step;                   // a rule that the job uses depends on the step
    uint64_t samples[CN_GROUP_MAX]; // number of training samples by rank
    uint32_t current;               // bit per rank that has the newest state
    uint32_t train;                 // bit per rank that trains; 0: undecided in this epoch
    uint32_t allowed;               // bit per rank that may train, including members left over
    uint32_t round;                 // round for which train was decided
    struct cn_auto_layout layout;   // layout of "parallel: auto"; else all 0
    char why[CN_LAYOUT_TEXT];       // why this layout was chosen, for people
    uint64_t micro_us;              // measured time of a micro-batch; 0: not measured in this epoch
};

struct cn_session {
    struct cn_session_config config;
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    struct cn_layout layout_own;
    const struct cn_layout *layout; // the trainer's layout with the job's rules for tensors
    struct cn_checkpoint held;      // the state that the group continues with after a failure

    struct {
        struct cn_dataset *set;
        struct cn_reader *reader; // reads the batches of set
        uint32_t files_round;     // round whose files the data set has; 0: none
        struct cn_batch batch;    // room for one micro-batch of an evaluation
        bool weighted; // rows may have a weight other than 1, so members tell their sums of weights
    } data;

    struct {
        uint64_t saved_ms;   // time of the last save of the checkpoint
        bool full;           // a full disk has been logged
        bool outbox_unsaved; // an update that cannot be stored has been logged
    } disk;

    struct {
        uint32_t shards; // number of shares into which the trainer's state is divided
        uint32_t stage;  // ZeRO stage of the trainer
        bool let_go;     // arrays of the held state were freed (cn_session_recall reads them)
    } sharing;

    struct {
        uint32_t unsaved; // number of steps that the group trained since the held state
        struct cn_session_counts unsaved_counts; // counts of these steps
        // A step whose reduced gradients the trainer holds apart from the weights. The votes did
        // not arrive, so it is unknown whether another member has applied them (recovery.h).
        struct cn_reduced_step pending;
        struct cn_reduced_step applied; // the last step that was applied
    } steps;

    struct cn_step_plan plan; // plan of the next step
    struct {
        uint32_t seat;                // index of this board in the profile's list
        struct cn_session_sets *sets; // NULL if the job names no sets
        uint32_t micro[CN_GROUP_MAX]; // micro-batches of the next step, by place
        struct cn_balance balance;    // measured speeds of the members
        char phase[CN_NAME_SIZE];     // phase of the job when the plan was made
    } planning;

    struct {
        double step_loss;                  // mean loss of the last step
        double step_s;                     // moving average of a local step; 0: not measured
        double busy_ms;                    // moving average of the time computing a step
        struct cn_step_split split;        // times of the last step
        struct cn_scores scores;           // of the last measured version, over the whole group
        uint64_t update_bytes;             // size of the newest update
        struct cn_rate_spectrum *spectrum; // of the last change; NULL until one was encoded
    } measured;

    struct {
        uint64_t refused_size; // size of the version that was last logged as refused
        struct cn_buffer part; // part of another member's state, from a transfer that was cut off
    } arriving;

    // Owned; exists between join and leave in a group of several members.
    struct cn_reducer *reducer;
};

// --- session.c ---

// Loads the held state into the trainer.
cn_err cn_session_load_trainer(struct cn_session *session);

// Returns the steps of the round that the group has done. A member that does not train may hold a
// state with fewer steps.
uint32_t cn_session_position(const struct cn_session *session);

// Returns the number of steps of the run before the next one, on whichever members.
uint64_t cn_session_steps_before(const struct cn_session *session);

// cn_session_has_room returns whether the profile leaves room on the disk for a state.
// cn_session_note_saved records and logs the result of a save.
bool cn_session_has_room(const struct cn_session *session);
void cn_session_note_saved(struct cn_session *session, cn_err saved);

// Opens the trainer again, with room for one of `shards` shares of the parts that the stage
// divides.
cn_err cn_session_reopen_trainer(struct cn_session *session, uint32_t shards, uint32_t stage);

// Allocates a row of zeros unless there is one.
cn_err cn_session_allocate(float **array, size_t total);

// --- session_data.c ---
//
// Data files come and go while a board runs; a round keeps the files that it began with. Their list
// is stored before the round trains (the file "data.list", runtime/round/CHECKPOINT.md), so that a
// resumed round has the same samples.

// Opens the data set. Uses the files of the stored list if it belongs to this run.
cn_err cn_session_open_data(struct cn_session *session, struct cn_diag *diag);

// Selects the files of a round: the stored list if it is of this round, else the files that are
// there now, whose list is then stored. Does nothing for a set of plain files.
cn_err cn_session_take_files(struct cn_session *session, uint32_t round);

// --- session_sets.c, session_auto.c, session_balance.c, session_catch_up.c ---
//
// All decisions depend only on what all members know: their facts, exchanged when an epoch begins,
// the leader's sets and addresses, and the progress of training. So all members decide alike at the
// same step without asking each other.

// Returns the engine's stage for the job's ZeRO stage.
static inline uint32_t cn_session_job_stage(const struct cn_job *job)
{
    return CN_STAGE_OPTIMIZER + (uint32_t)job->parallel.stage;
}

_Static_assert(CN_STAGE_OPTIMIZER + (int)CN_SHARING_WEIGHTS == (int)CN_STAGE_WEIGHTS,
               "what a job says and the stages of the engine are in one order");

// Returns the bits of all ranks.
static inline uint32_t cn_session_everybody(const struct cn_session_sets *sets)
{
    return (1u << sets->view.size) - 1;
}

// Decides who trains the next step. A member that is to train and lacks the others' state takes it.
// Call it before each step.
cn_err cn_session_plan_step(struct cn_session *session, struct cn_collective *collective);

// Gives all members the state of those that train. Does nothing where all members trained.
cn_err cn_session_catch_up(struct cn_session *session, struct cn_collective *collective);

// Call cn_session_count_step after each step, and cn_session_mark_synced when all members hold the
// same state.
void cn_session_count_step(struct cn_session *session);
void cn_session_mark_synced(struct cn_session *session);

// With "parallel: auto", chooses the layout for the members in train, on all members alike. Else
// does nothing.
cn_err cn_session_choose_layout(struct cn_session *session, struct cn_collective *collective,
                                uint32_t train);
bool cn_session_is_automatic(const struct cn_session *session);

// Returns the micro-batches of a step for each member that trains, before balancing.
uint32_t cn_session_accumulates(const struct cn_session *session);

// Returns this board's share of the held-out samples: every *count-th batch from batch *first on;
// none if *count is 0.
void cn_session_measured_share(const struct cn_session *session, uint32_t *first, uint32_t *count);

// Divides the micro-batches of a step among plan.train: equally, or as the held state says if the
// job balances them.
void cn_session_split_micro_batches(struct cn_session *session);

// Balances the next steps by the time that each rank computed: slower members get fewer
// micro-batches.
void cn_session_balance(struct cn_session *session, const float *computed_ms);

// Records the current division in the held state.
void cn_session_record_micro(struct cn_session *session);

// Sets the plan in which all members train, all in the same way.
void cn_session_plan_alike(struct cn_session *session);

// --- session_shards.c ---
//
// Trains a group's model with a share of the state on each member (ZeRO stages 1 to 3). A member
// reduces the gradient of its share only, applies it, and gathers the others' weights: after the
// step, or in stage 3 bucket by bucket when a pass needs them. So no member holds the whole state.
// Every few seconds all members gather the state together, and each stores the whole of it. Between
// two stores the held state does not change; the steps since then count as unsaved. After a failure
// all members return to the held state and train those steps again. The result is the same while
// the members are the same.

// Returns whether this board trains with a share now.
bool cn_session_is_sharded(const struct cn_session *session);

// Gives the trainer the plan's share of the held state, with memory for this share only.
cn_err cn_session_take_share(struct cn_session *session);

// Returns whether each micro-batch is reduced separately, as from stage 2 on. Then
// cn_session_accumulate_shared accumulates a step; first is the number of its first batch.
bool cn_session_shares_gradients(const struct cn_session *session);
cn_err cn_session_accumulate_shared(struct cn_session *session, uint64_t first,
                                    struct cn_metrics *metrics);

// Checks this board's share of the reduced gradient before the vote. Sets *finite to false if a
// number of it is not finite.
cn_err cn_session_check_share(struct cn_session *session, struct cn_collective *collective,
                              bool *finite);

// Clips the share by the norm of the whole gradient. Call it after the vote, from stage 2 on.
cn_err cn_session_clip_share(struct cn_session *session, struct cn_collective *collective,
                             double weight);

// Gathers the weights of all shares after the optimizer.
cn_err cn_session_gather_weights(struct cn_session *session, struct cn_collective *collective);

// Gathers one row of the state from all shares. row has room for all of its values.
enum cn_session_row { CN_ROW_WEIGHTS, CN_ROW_OPTIMIZER, CN_ROW_SECOND };
cn_err cn_session_gather_row(struct cn_session *session, struct cn_collective *collective,
                             enum cn_session_row what, float *row);

// In stage 3, sets held.weights to the trained weights at the end of a round.
cn_err cn_session_bring_weights(struct cn_session *session, struct cn_collective *collective);

// Writes the trained weights to `to`. In stage 3 call cn_session_bring_weights before.
cn_err cn_session_get_weights(struct cn_session *session, float *to);

// --- session_store.c ---
//
// Gathers and stores the held state of members with shares. Arrays of it that the trainer also has
// need not be in memory.

// Gathers all shares into the held state of every member that trains, in memory.
cn_err cn_session_gather(struct cn_session *session, struct cn_collective *collective);

// Stores the held state, which was gathered or taken. Then frees the arrays that the trainer also
// has.
cn_err cn_session_store_held(struct cn_session *session);

// cn_session_store writes all shares to the disk of every member that trains, one row at a time;
// they become the held state. cn_session_store_due returns whether this board considers it due; the
// vote tells all members.
bool cn_session_store_due(const struct cn_session *session);
cn_err cn_session_store(struct cn_session *session, struct cn_collective *collective);

// cn_session_first_weights sets held.weights to those of the version, before a round's first step.
// cn_session_let_go_first frees the held arrays of a member with a share, if the round begins
// without optimizer state.
cn_err cn_session_first_weights(struct cn_session *session);
void cn_session_let_go_first(struct cn_session *session);

// Reads the freed arrays of the held state from the disk. At a first step they are computed from
// the base instead.
cn_err cn_session_recall(struct cn_session *session);

// Adds the counts since the held state to it.
void cn_session_add_unsaved(struct cn_session *session);

// --- session_residual.c ---

// Reduces a residual that has waited long: it was meant for weights that have changed since. Local
// statistics stay as they are.
void cn_session_decay_residual(struct cn_session *session);

// Records the newest counted update. If the group delivered it without this board's frame, this
// board's residual was part of it and is forgotten.
void cn_session_note_newest(struct cn_session *session, const struct cn_decision *newest);

// Allocates a residual of zeros unless there is one.
cn_err cn_session_allocate_residual(struct cn_session *session);

// Empties the residual when a version that was installed went back to an earlier one after the
// rounds that the residual is of.
void cn_session_follow_rollback(struct cn_session *session,
                                const struct cn_session_version *version);

// Copies the group's own statistics into the weights of a version, if the job keeps statistics
// local.
void cn_session_localize(const struct cn_session *session, float *weights);

// --- session_update.c ---

// These allocate the optimizer's state of the checkpoint as zeros unless there is one, free it, and
// copy it from the trainer.
cn_err cn_session_allocate_optimizer(struct cn_session *session);
void cn_session_release_optimizer(struct cn_session *session);
cn_err cn_session_keep_optimizer(struct cn_session *session);

// Writes what the round has trained (weights - base) to `to`. Local statistics are taken relative
// to the residual, which holds their earlier part.
cn_err cn_session_change(struct cn_session *session, float *to);

// Encodes change + residual by the rule of the round. The part that the frame leaves out becomes
// next_residual. Change and next_residual reuse the memory of the held weights and the residual, so
// no more rows are held than in a step. After CN_EDIVERGED and CN_ERANGE the residual is unchanged,
// but the held weights are not.
cn_err cn_session_encode(struct cn_session *session, struct cn_buffer *frame);

// Keeps the optimizer's momentum after the round, except where values were sent: momentum would
// send them again (momentum-factor masking, Lin et al. 2018).
cn_err cn_session_keep_momentum(struct cn_session *session);

// --- session_alone.c ---
//
// A session without a group and an aggregator: the weights of a round become the next version
// unchanged, and nothing is sent. So there is no copy of any row besides the trainer's: states move
// between its memory and the disk.

// Returns whether the board trains without a group and an aggregator.
bool cn_session_is_alone(const struct cn_session *session);

// Saves the held state with the trainer's rows. *saved is the result of the disk, which does not
// fail the call. An error returned is the device's; the trainer's rows, of which no copy exists,
// may then be torn.
cn_err cn_session_save_rows(struct cn_session *session, cn_err *saved);

// Reads the rows of a stored state, which is the held state, into the trainer. Rows that the file
// lacks keep their values.
cn_err cn_session_take_rows(struct cn_session *session, const struct cn_checkpoint_file *file);

// Lets the trainer continue with its rows from the step of the held state.
cn_err cn_session_resume_trainer(struct cn_session *session);

// --- session_trace.c ---

// Collects the times of all members in a step, and writes them if a timeline is wanted.
cn_err cn_session_trace(struct cn_session *session, const struct cn_step_times *times);

// Writes the epoch to the timeline. Call it at the end of an epoch.
void cn_session_trace_epoch(const struct cn_session *session);
