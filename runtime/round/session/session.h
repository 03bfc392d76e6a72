// session.h - one board's part in a run: model, data, optimizer and the state that must survive.
//
// It turns the decisions of round.h into changes of the checkpoint. Every function that ends with a
// durable state says so; between two of them a kill loses at most steps, which are then trained
// again with the same result. Collective calls come in the same order on all members of the group.
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

#define CN_SESSION_BATCHES 3 // in memory: two of the reader, one that is measured

struct cn_session_config {
    const struct cn_settings *settings; // of this board; borrowed, as all pointers here
    const struct cn_member *members;    // of the group, where they are now; NULL: as in settings
    const struct cn_job *job;           // of the run
    const struct cn_compute_ops *compute;
    struct cn_store *store;
    const uint8_t *model; // the ONNX file; its weights do not matter
    size_t model_size;
    const struct cn_onnx_file *file; // it is of, which may leave memory; NULL for none
    uint8_t graph[CN_DIGEST_SIZE];
    uint64_t run;
    uint64_t older_run; // states of it are taken up as of run; 0 for none
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

// Who does the work of a step and how: decided on all members alike before it (session_sets.h).
struct cn_step_plan {
    bool whole;          // every member trains
    bool trains;         // this board does
    struct cn_set train; // those that train, unless all do
    uint32_t micro;      // micro-batches of this board
    uint32_t before;     // of the boards before it, by dp_rank (runtime/group/ranks.h)
    uint32_t total;      // of all
    uint32_t shards;     // members that hold the model's state together; 1: each has all of it
    uint32_t stage; // of ZeRO: what of it they share out (runtime/engine/program/bucket_plan.h)
    uint32_t shard; // of this board
    struct cn_set together, alike; // that hold it together; that hold the same share of it
    uint32_t place;                // of this board among those that train
    uint32_t seats[CN_GROUP_MAX];  // by place: number in the profile's list
    char names[128];               // of those that train, for people; "" where the job names no set
};

// Sums over steps.
struct cn_session_counts {
    uint64_t samples, cursor;
    double train_loss;
};

struct cn_reducer;

#define CN_STEP_VOTES (11 + 2 * CN_GROUP_MAX) // session_step.c names them

// A step whose gradients are reduced over the group.
struct cn_reduced_step {
    uint64_t epoch; // 0: there is none
    uint32_t round, step;
    float votes[CN_STEP_VOTES]; // their sums; of one that is applied
};

struct cn_session {
    struct cn_session_config config;
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    struct cn_dataset *dataset;
    struct cn_reader *reader; // of its batches
    uint32_t shards_round;    // the round that the data set's shards are of; 0: none
    struct cn_layout layout_own;
    const struct cn_layout *layout; // that of the trainer, with what the job says of its tensors
    struct cn_batch batch;          // room for one micro-batch that is evaluated
    struct cn_checkpoint held;
    uint64_t refused_size;             // of a version, bytes; logged last by cn_session_may_take
    bool weighted;                     // rows may weigh other than 1 a sample: members say how much
    double step_loss;                  // mean of the last step
    struct cn_scores scores;           // of the version measured last, over the whole group
    uint64_t update_bytes;             // of the newest update
    struct cn_rate_spectrum *spectrum; // of the last change; NULL until one was encoded
    double step_s;                     // of a local step, a moving average; 0: not measured
    uint32_t seat;                     // of this board in its group, whoever else is there
    struct cn_session_sets *sets;      // NULL: the job names none
    struct cn_step_plan plan;          // of the next step
    uint32_t micro[CN_GROUP_MAX];      // its micro-batches, by place
    struct cn_balance balance;         // what they take
    char phase[CN_NAME_SIZE];          // of the job, as of the plan
    uint64_t saved_ms;                 // when the checkpoint was last saved
    bool disk_full;                    // said so already
    double busy_ms;                    // computing a step, a moving average
    // The trainer holds the sums of this step's gradients, apart from the weights: the votes did
    // not come, so it is not known whether another member has applied them (recovery.h).
    struct cn_reduced_step pending;
    struct cn_reduced_step applied; // the last one
    struct cn_buffer part;          // of another member's state, from a transfer that was cut
    // Steps of the round that the group trained since the state that is held here, and their sums.
    uint32_t ahead;
    struct cn_session_counts since;
    uint32_t state_shards; // that the trainer has room for one of
    uint32_t state_stage;  // what they share out
    bool let_go;           // arrays of the held state are not in memory (cn_session_recall)
    struct cn_step_split split;
    struct cn_slow slow; // why this board may be slow; set by the caller, told with each vote
    struct cn_reducer *reducer; // owned; between join and leave in a group of several
};

// Opens model and data and takes up the stored state when it is of this run. A damaged slot, data
// that does not fit and unsupported ops are lines in diag. CN_ECONFLICT: alone, the stored state is
// of another run and is to stay; nothing was changed.
cn_err cn_session_open(const struct cn_session_config *config, struct cn_diag *diag,
                       struct cn_session **session);
void cn_session_close(struct cn_session *session);

// Bytes that training alone takes: what the trainer plans, and the batches. The rest does not
// depend on the model: at most 16 MiB.
uint64_t cn_session_memory(const struct cn_session *session);

// A version of the model as it arrived: full bytes, or a frame: a delta that makes it from the held
// base, or a snapshot.
struct cn_session_version {
    uint32_t number;
    uint8_t digest[CN_DIGEST_SIZE];
    const uint8_t *bytes;
    size_t size;
    bool delta; // a frame
};

// Sets digest to that of the version which a frame makes: the base of the next delta, or a digest
// known otherwise, says whether it is right. Errors as below.
cn_err cn_session_resolve_version(const struct cn_session *session,
                                  struct cn_session_version *version);

// Returns whether a version of this model can have size bytes: a full one has a fixed number, a
// delta at most that of a frame. Logs a size that is refused, once. Ask before memory is taken for
// it.
bool cn_session_may_take(struct cn_session *session, uint32_t number, bool delta, uint64_t size);

// Checks that a version can be installed; changes nothing. CN_EDIGEST, CN_EFORMAT, CN_ESTALE when a
// delta is not relative to the held base.
cn_err cn_session_check_version(const struct cn_session *session,
                                const struct cn_session_version *version);

// Measures it on the held-out samples of all members, makes it the base, replaces
// model.current.onnx. Durable. An error of the collective changes nothing.
cn_err cn_session_install(struct cn_session *session, struct cn_collective *collective,
                          const struct cn_session_version *version);

// Of a board alone: makes the trainer's weights, the model's own at first, the version of this
// number, as install does.
cn_err cn_session_adopt(struct cn_session *session, struct cn_collective *collective,
                        uint32_t number);

// What the members of a group agree on before a round: rank 0 makes it for all.
struct cn_round_order {
    uint32_t round;
    uint32_t steps;
    struct cn_update_rule rule;
    // The group's newest update that counts; .round 0: none. Was it made by another part of the
    // group, then what waits here is in it: the residual is emptied.
    struct cn_decision newest;
};

// The order for a round: that of the job, or with CN_UPDATE_AUTO what fits into remaining_ms over
// the link.
void cn_session_plan(const struct cn_session *session, uint32_t round,
                     const struct cn_link_path_stats *link, uint64_t remaining_ms,
                     struct cn_round_order *order);

// Weights = base, step 0. With CN_UPDATE_AUTO durable, so that the round is resumed with the same
// order; else a kill before the first save begins the round again, which comes to the same.
// CN_EFORMAT for an order that no session makes.
cn_err cn_session_begin(struct cn_session *session, const struct cn_round_order *order);

// Between join and leave the session is in an epoch of several members, and gradients travel while
// the backward pass goes on. Without, or in a group of one, a step reduces them by itself.
cn_err cn_session_join(struct cn_session *session, struct cn_collective *collective,
                       const struct cn_view *view);
void cn_session_leave(struct cn_session *session);

// The bytes of gradients that are reduced at a time: rank 0's own choice until its votes change
// it. All members set the same, between steps.
size_t cn_session_bucket(const struct cn_session *session);
cn_err cn_session_set_bucket(struct cn_session *session, size_t bucket);

// How gradients travel, likewise.
void cn_session_set_wire(struct cn_session *session, enum cn_number wire);

struct cn_step_flags {
    bool knocked; // in: this member wants to end the epoch; out: some member does
    bool abandon; // in: the leader gives the round up; out: it did, nothing was applied
};

// One step on all members. CN_EDIVERGED: on all members alike; the weights are those before the
// step.
cn_err cn_session_step(struct cn_session *session, struct cn_collective *collective,
                       struct cn_step_flags *flags);

// The epoch whose sums of the next step are held; that of the last step of the held state. 0: none.
uint64_t cn_session_holds(const struct cn_session *session);
uint64_t cn_session_applied(const struct cn_session *session);

// Ends the step whose sums are held as the members did that saw these votes, or forgets it.
cn_err cn_session_roll_forward(struct cn_session *session, const float votes[CN_STEP_VOTES]);
cn_err cn_session_drop_sums(struct cn_session *session);

bool cn_session_round_done(const struct cn_session *session);

// Steps of the round that the group has done; those in the held state may be fewer on a member that
// looks on.
uint32_t cn_session_position(const struct cn_session *session);

// Encodes the update; afterwards it is in the outbox of every member, secured, and the same
// everywhere. CN_EDIGEST on a member whose frame is not that of rank 0: it must heal from another
// member.
cn_err cn_session_finish(struct cn_session *session, struct cn_collective *collective);

// Makes the outbox durable on every member whose disk takes it and returns when it is on one. A
// frame may be sent only then: a power cut cannot lose it. Waits for room while all disks are full,
// until stopped: CN_ECANCELED.
cn_err cn_session_secure_outbox(struct cn_session *session, struct cn_collective *collective);

// The outcome of the outbox. The residual takes all of the change where nothing of it counts, and
// what the frame left out where it counts or another one in its place: no step counts twice.
// Durable.
cn_err cn_session_decide(struct cn_session *session, const struct cn_decision *decision);

// Gives a begun round up: what was trained so far goes into the residual unless another part of the
// group has delivered it (then the residual is empty), or decision is NULL (then it stays as it
// was). A member that looked on has caught up before. Durable.
cn_err cn_session_abandon(struct cn_session *session, const struct cn_decision *decision);

// Saves when the last save is older than interval_ms. A full disk is a warning: the stored state
// stays.
cn_err cn_session_save(struct cn_session *session, uint64_t interval_ms);

// Takes over the state of another member (an encoded checkpoint). Durable.
cn_err cn_session_take(struct cn_session *session, const uint8_t *bytes, size_t size);

// Brings the checkpoint up to date with the trainer, for encoding or saving.
cn_err cn_session_snapshot(struct cn_session *session);

// The trainer continues where the held state says.
cn_err cn_session_load_trainer(struct cn_session *session);

// Puts the group's own statistics into weights of a version, when the job says that they are local.
void cn_session_localize(const struct cn_session *session, float *weights);

// What is known of the base beyond loss and accuracy. After a restart: nothing.
struct cn_measures cn_session_measures(const struct cn_session *session);

// Fills in what a session knows of its progress; the rest stays as it is.
void cn_session_tell(struct cn_session *session, struct cn_progress *progress);

// Largest size of an encoded checkpoint of this model.
size_t cn_session_state_limit(const struct cn_session *session);
