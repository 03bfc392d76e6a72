// session.h - one board's part in a run: model, data, optimizer and the state that must survive a
// crash.
//
// It turns the decisions of round.h into changes of the checkpoint. A function that leaves a
// durable state says so. Between two durable states a kill loses only steps, which are trained
// again with the same result. All members of a group make collective calls in the same order.
// Threading: one thread (the worker of a node).
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/base/diag.h"
#include "runtime/engine/data/reader.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/trainer/trainer.h"
#include "runtime/group/balance.h"
#include "runtime/port/collective.h"
#include "runtime/port/link.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/round.h"
#include "runtime/round/upkeep/progress.h"

struct cn_timeline;

#define CN_SESSION_BATCHES 3 // micro-batches in memory: two of the reader, one that is measured

struct cn_session_config {
    const struct cn_settings *settings; // settings of this board; borrowed, like all pointers here
    const struct cn_member *members;    // members at their current addresses; NULL: as in settings
    const struct cn_job *job;           // job of the run
    const struct cn_compute_ops *compute;
    struct cn_store *store;
    const uint8_t *model; // the ONNX file; its weights do not matter
    size_t model_size;
    const struct cn_onnx_file *file; // file of the model, whose pages may leave memory; NULL: none
    uint8_t graph[CN_DIGEST_SIZE];
    uint64_t run;
    uint64_t older_run; // states of this run are accepted as those of run; 0: none
    uint32_t lineage;
    const char *group;            // name of the sender of updates
    bool alone;                   // without group and aggregator: only the trainer holds rows
    bool anew;                    // alone: a stored state is not taken up, whatever run it is of
    bool replaces;                // alone: a stored state of another run may be overwritten
    bool sequential;              // samples in file order
    struct cn_timeline *timeline; // of all members' steps; NULL for none
    int stop_fd;                  // readable when the caller wants to stop; -1 for none
    atomic_int *disk; // set to what the disk said when the state was last stored; NULL: nobody asks
};

// How a step is trained: decided alike on all members before the step (session_sets.h).
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
    uint32_t shard; // index of this board's shard
    // Members whose shares make up the whole state; members that hold the same share.
    struct cn_set together, alike;
    uint32_t place;               // place of this board among the members that train
    uint32_t seats[CN_GROUP_MAX]; // by place: index in the profile's list
    char names[128]; // names of the members that train, for people; "" if the job names no set
};

// Counts that add up over steps.
struct cn_session_counts {
    uint64_t samples, cursor;
    double train_loss;
};

struct cn_reducer;

#define CN_STEP_VOTES (11 + 2 * CN_GROUP_MAX) // session_step.c names them

// A step whose gradients are reduced over the group.
struct cn_reduced_step {
    uint64_t epoch; // epoch of the step; 0: no step
    uint32_t round, step;
    float votes[CN_STEP_VOTES]; // sums of the votes, for a step that was applied
};

struct cn_session {
    struct cn_session_config config;
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    struct cn_dataset *dataset;
    struct cn_reader *reader; // reads the batches of dataset
    uint32_t shards_round;    // round whose shards the data set has; 0: none
    struct cn_layout layout_own;
    const struct cn_layout *layout; // the trainer's layout with the job's rules for tensors
    struct cn_batch batch;          // room for one micro-batch of an evaluation
    struct cn_checkpoint held;
    uint64_t refused_size; // size of the version that cn_session_may_take last logged as refused
    bool weighted;    // rows may have a weight other than 1, so members tell their sums of weights
    double step_loss; // mean loss of the last step
    struct cn_scores scores; // measures of the last measured version, over the whole group
    uint64_t update_bytes;   // size of the newest update
    struct cn_rate_spectrum *spectrum; // spectrum of the last change; NULL until one was encoded
    double step_s;                     // moving average of a local step; 0: not measured
    uint32_t seat;                     // index of this board in the profile's list
    struct cn_session_sets *sets;      // NULL if the job names no sets
    struct cn_step_plan plan;          // plan of the next step
    uint32_t micro[CN_GROUP_MAX];      // micro-batches of the next step, by place
    struct cn_balance balance;         // measured speeds of the members
    char phase[CN_NAME_SIZE];          // phase of the job when the plan was made
    uint64_t saved_ms;                 // time of the last save of the checkpoint
    bool disk_full;                    // a full disk has been logged
    bool outbox_unsaved;               // an update that cannot be stored has been logged
    double busy_ms;                    // moving average of the time computing a step
    // A step whose reduced gradients the trainer holds apart from the weights. The votes did not
    // arrive, so it is unknown whether another member has applied them (recovery.h).
    struct cn_reduced_step pending;
    struct cn_reduced_step applied; // the last step that was applied
    struct cn_buffer part; // part of another member's state, from a transfer that was cut off
    // Steps that the group trained since the held state, and their counts.
    uint32_t ahead;
    struct cn_session_counts since;
    uint32_t state_shards; // number of shares into which the trainer's state is divided
    uint32_t state_stage;  // ZeRO stage of the trainer
    bool let_go;           // arrays of the held state were freed (cn_session_recall reads them)
    struct cn_step_split split;
    struct cn_slow slow; // why this board may be slow; set by the caller, sent with each vote
    // Owned; exists between join and leave in a group of several members.
    struct cn_reducer *reducer;
};

// Opens model and data, and continues from the stored state if it belongs to this run. Reports a
// damaged slot, data that does not fit and unsupported ops in diag. Returns CN_ECONFLICT, without
// changing anything, when a board alone has a stored state of another run that must stay.
cn_err cn_session_open(const struct cn_session_config *config, struct cn_diag *diag,
                       struct cn_session **session);
void cn_session_close(struct cn_session *session);

// Returns the bytes that training alone needs: the trainer's plan and the batches. Anything else
// does not depend on the model and takes at most 16 MiB.
uint64_t cn_session_memory(const struct cn_session *session);

// A version of the model as it arrived: full bytes or a frame. A frame is a delta from the held
// base, or a snapshot.
struct cn_session_version {
    uint32_t number;
    uint8_t digest[CN_DIGEST_SIZE];
    const uint8_t *bytes;
    size_t size;
    bool delta; // bytes are a frame
};

// Computes the digest of the version that a frame makes. The base of the next delta, or a digest
// from elsewhere, tells whether it is right. Returns the errors of cn_session_check_version.
cn_err cn_session_resolve_version(const struct cn_session *session,
                                  struct cn_session_version *version);

// Returns whether a version of this model can have size bytes. A full version has a fixed size; a
// frame has an upper limit. Logs a refused size once. Call it before allocating memory for the
// version.
bool cn_session_may_take(struct cn_session *session, uint32_t number, bool delta, uint64_t size);

// Checks that a version can be installed, without changing anything. Returns CN_EDIGEST,
// CN_EFORMAT, or CN_ESTALE when a delta does not start from the held base.
cn_err cn_session_check_version(const struct cn_session *session,
                                const struct cn_session_version *version);

// Measures a version on the held-out samples of all members, makes it the base and replaces
// model.current.onnx. Durable. An error of the collective changes nothing.
cn_err cn_session_install(struct cn_session *session, struct cn_collective *collective,
                          const struct cn_session_version *version);

// For a board alone: makes the trainer's weights the version with this number, as install does. At
// first these are the model's own weights.
cn_err cn_session_adopt(struct cn_session *session, struct cn_collective *collective,
                        uint32_t number);

// What the members of a group agree on before a round. Rank 0 makes it for all.
struct cn_round_order {
    uint32_t round;
    uint32_t steps;
    struct cn_update_rule rule;
    // The group's newest update that counts; round 0: none. If another part of the group made it,
    // the changes that wait here are part of it, and the residual is emptied.
    struct cn_decision newest;
};

// Makes the order for a round: the job's, or with CN_UPDATE_AUTO one that fits the link within
// remaining_ms.
void cn_session_plan(const struct cn_session *session, uint32_t round,
                     const struct cn_link_path_stats *link, uint64_t remaining_ms,
                     struct cn_round_order *order);

// Begins a round: weights = base, step 0. With CN_UPDATE_AUTO it is durable, so that the round is
// resumed with the same order. Otherwise a kill before the first save begins the round again, with
// the same result. Returns CN_EFORMAT for an order that no session makes.
cn_err cn_session_begin(struct cn_session *session, const struct cn_round_order *order);

// Between join and leave the session is in an epoch of several members, and gradients travel during
// the backward pass. Otherwise a step reduces its gradients at its end.
cn_err cn_session_join(struct cn_session *session, struct cn_collective *collective,
                       const struct cn_view *view);
void cn_session_leave(struct cn_session *session);

// The bytes of gradients that are reduced at a time: at first rank 0's own choice, later the choice
// in its votes. All members set the same value, between two steps.
size_t cn_session_bucket(const struct cn_session *session);
cn_err cn_session_set_bucket(struct cn_session *session, size_t bucket);

// Sets the number format in which gradients travel, under the same conditions.
void cn_session_set_wire(struct cn_session *session, enum cn_number wire);

struct cn_step_flags {
    bool knocked; // in: this member asks to end the epoch; out: some member does
    // In: the leader gives up the round; out: it was given up, and nothing was applied.
    bool abandon;
};

// Trains one step on all members. CN_EDIVERGED is returned on all members alike; the weights are
// then unchanged.
cn_err cn_session_step(struct cn_session *session, struct cn_collective *collective,
                       struct cn_step_flags *flags);

// cn_session_holds returns the epoch of the pending sums for the next step. cn_session_applied
// returns the epoch of the held state's last step. 0: none.
uint64_t cn_session_holds(const struct cn_session *session);
uint64_t cn_session_applied(const struct cn_session *session);

// cn_session_roll_forward completes the pending step with the votes that other members saw.
// cn_session_drop_sums forgets it.
cn_err cn_session_roll_forward(struct cn_session *session, const float votes[CN_STEP_VOTES]);
cn_err cn_session_drop_sums(struct cn_session *session);

// Returns whether the round's steps are done.
bool cn_session_round_done(const struct cn_session *session);

// Returns the steps of the round that the group has done. A member that does not train may hold a
// state with fewer steps.
uint32_t cn_session_position(const struct cn_session *session);

// Encodes the update. Afterwards every member has the same update in its outbox, secured. Returns
// CN_EDIGEST on a member whose frame differs from rank 0's: it must heal from another member.
cn_err cn_session_finish(struct cn_session *session, struct cn_collective *collective);

// Stores the outbox on every member whose disk accepts it, and returns when it is durable on one. A
// frame may be sent only then, so that a power cut cannot lose it. While all disks are full it
// waits for room; returns CN_ECANCELED when stopped.
cn_err cn_session_secure_outbox(struct cn_session *session, struct cn_collective *collective);

// Applies the outcome of the outbox. Rejected or late: the whole change goes into the residual.
// Accepted, or replaced by another member's update: only the part that the frame left out does. So
// no step counts twice. Durable.
cn_err cn_session_decide(struct cn_session *session, const struct cn_decision *decision);

// Gives up a begun round. The changes trained so far go into the residual. If decision says that
// another part of the group has delivered them, the residual is emptied; if decision is NULL, it
// stays as it was. A member that did not train has caught up before. Durable.
cn_err cn_session_abandon(struct cn_session *session, const struct cn_decision *decision);

// Saves the state if the last save is older than interval_ms. On a full disk it logs a warning and
// keeps the stored state.
cn_err cn_session_save(struct cn_session *session, uint64_t interval_ms);

// Replaces the held state by that of another member, an encoded checkpoint. Durable.
cn_err cn_session_take(struct cn_session *session, const uint8_t *bytes, size_t size);

// Updates the checkpoint from the trainer, before encoding or saving it.
cn_err cn_session_snapshot(struct cn_session *session);

// Loads the held state into the trainer.
cn_err cn_session_load_trainer(struct cn_session *session);

// Copies the group's own statistics into the weights of a version, if the job keeps statistics
// local.
void cn_session_localize(const struct cn_session *session, float *weights);

// Returns the measures of the base other than loss and accuracy. They are unknown after a restart.
struct cn_measures cn_session_measures(const struct cn_session *session);

// Fills in the fields of progress that a session knows; the others stay.
void cn_session_tell(struct cn_session *session, struct cn_progress *progress);

// Returns the largest size of an encoded checkpoint of this model.
size_t cn_session_state_limit(const struct cn_session *session);
