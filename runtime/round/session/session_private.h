// session_private.h - what the files of a session share. Private to runtime/round/session.
#pragma once

#include "runtime/engine/data/reader.h"
#include "runtime/engine/program/bucket_plan.h"
#include "runtime/engine/trainer/trainer_shards.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/group/balance.h"
#include "runtime/port/scratch.h"
#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/session/session.h"
#include "runtime/round/session/session_plan_private.h"
#include "runtime/round/session/session_reduce.h"

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
        uint64_t saved_ms;      // time of the last save of the checkpoint
        uint64_t store_took_ms; // duration of the last store of a divided state
        bool full;              // a full disk has been logged
        bool outbox_unsaved;    // an update that cannot be stored has been logged
        bool model_unsaved;     // a model file that cannot be replaced has been logged
        uint32_t rows;          // rows of the held state that the disk has (session_rows.c)
        bool rows_in_memory;    // rows that belong on the disk lie in memory: logged
        bool rows_fit;          // the disk had the room that rows in files need
        uint64_t rows_fit_ms;   // clock; when that was looked at last; 0: never
        bool no_parts;          // no file of a part is there (session_part_store.c)
        bool parts_failed;      // in this round, stored parts made no state, or differed
        bool parts_void;        // that no member's count in this round has been logged
        bool part_damaged;      // a damaged one has been logged
        uint32_t part_slot;     // of those files, the one that is written next
        uint32_t first_of;      // round whose state before the first step was stored; 0: none
        uint64_t copied;        // set whose copies were stored in this epoch; 0: none
        uint64_t named;         // set that the newest state on the disk names; 0: none
    } disk;

    struct {
        uint32_t shards;             // number of shares into which the trainer's state is divided
        uint32_t stage;              // ZeRO stage of the trainer
        uint32_t shard;              // index of the trainer's share; UINT32_MAX: it has none yet
        enum cn_recompute recompute; // least that the trainer computes again, as members agreed
        uint32_t batch;              // micro-batch of the step whose pass makes exchanges
        bool let_go;   // arrays of the held state were freed (cn_session_recall reads them)
        uint32_t gone; // rows that only the disk has (session_rows.c)
    } sharing;

    struct cn_session_cut cut;

    struct { // a model that is cut into parts (session_chain.h); zeros without a pipeline
        uint32_t samples;        // cn_dataset_sum
        uint32_t members;        // members of which the chains were formed
        uint32_t most;           // most micro-batches that a part has in flight; 0: no limit
        bool waits;              // too few members for a chain: nobody trains in this epoch
        char why[CN_FAULT_SIZE]; // why this board is in no chain that it should be in; "": it is
        char needs[CN_HEALTH_REST_SIZE]; // members that a chain waits for, for people; ""
        struct {                         // the last trainer that could not be opened
            uint64_t bytes;              // fewest that a step takes; 0: unknown
            uint32_t part, shards;
        } lacked;
        char lack[CN_FAULT_SIZE]; // what this board lacks memory for in this epoch; ""
        // Room for the messages of a step, as long as the trainer is open.
        struct cn_chain_lane lanes[CN_BOUNDARY_COUNT];
        struct cn_chain_log *log; // owned; session_chain_trace.c
    } chain;

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
        // With "parallel: auto", by stage: bytes of a step of the whole model, without a version
        // that arrives; zeros: no share fits.
        struct cn_trainer_need needs[CN_STAGE_WEIGHTS];
        char phase[CN_NAME_SIZE]; // phase of the job when the plan was made
    } planning;

    struct {
        double step_loss;                 // mean loss of the last step
        uint32_t odd_round;               // round in which sums that cannot be were logged last
        double step_s;                    // moving average of a local step; 0: not measured
        double busy_ms;                   // moving average of the time computing a step
        struct cn_step_split split;       // parts of a step's time: moving averages of this epoch
        struct cn_scores scores;          // measures of the last measured version, over the group
        uint64_t update_bytes;            // size of the newest update
        uint32_t link_kbps[CN_GROUP_MAX]; // by member: newest measured rate; 0: not measured
        uint32_t link_leader;             // member that measured it
        struct cn_rate_spectrum
            *spectrum; // spectrum of the last change; NULL until one was encoded
    } measured;

    struct {
        uint64_t refused_size; // size of the version that was last logged as refused
        // Part of another member's state, from a transfer that was cut off. Its data is memory of
        // scratch.h.
        struct cn_buffer part;
    } arriving;

    // Owned; exists between join and leave in a group of several members.
    struct cn_reducer *reducer;
};

// Returns whether the job's model is cut into parts.
static inline bool cn_session_is_cut(const struct cn_session *session)
{
    return session->cut.at.parts > 1;
}

// Returns whether a chain trains on the samples of one of its members, another one each round.
static inline bool cn_session_takes_turns(const struct cn_session *session)
{
    return cn_session_is_cut(session) && session->config.job->parallel.scope == CN_SCOPE_OWN;
}

// Returns whether the trainer holds less than the whole state of the model.
static inline bool cn_session_divides_state(const struct cn_session *session)
{
    return session->sharing.shards > 1 || cn_session_is_cut(session);
}

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

// Allocates a row of zeros (runtime/port/scratch.h) unless there is one.
cn_err cn_session_allocate(float **array, size_t total);

// --- session_trainer.c ---

// Opens the model, and the trainer with what the job and the memory of this board allow. Sets the
// layout. Errors have lines in diag.
cn_err cn_session_open_model(struct cn_session *session, struct cn_diag *diag);

// Opens the trainer again, with room for one of `shards` shares of the parts that the stage
// divides, and computing at least this much again. On an error the trainer is as before;
// CN_EWEDGED: there is none.
cn_err cn_session_reopen_trainer(struct cn_session *session, uint32_t shards, uint32_t stage,
                                 enum cn_recompute recompute);

// Opens the trainer again as session->cut and session->sharing say. On an error there is none: the
// caller changes them and tries again.
cn_err cn_session_try_trainer(struct cn_session *session);

// As cn_session_try_trainer, of the whole model, or of a share of it if the whole does not fit.
cn_err cn_session_try_whole(struct cn_session *session);

// --- session_data.c ---
//
// Data files come and go while a board runs; a round keeps the files that it began with. Their list
// is stored before the round trains (the file "data.list", runtime/round/CHECKPOINT.md), so that a
// resumed round has the same samples.

// Opens the data set. Uses the files of the stored list if it belongs to this run.
cn_err cn_session_open_data(struct cn_session *session, struct cn_diag *diag);

// Selects the files of a round: those of the stored list if it is of this round, else the files
// that are there now. The list of the latter is then stored. Does nothing for a set of plain files.
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

// Returns the member of a rank, as this board's profile has it.
static inline const struct cn_member *cn_session_member(const struct cn_session *session,
                                                        uint32_t rank)
{
    return &session->config.settings->group.members[session->planning.sets->view.ranks[rank]];
}

// Returns the bits of the ranks that a layout trains with.
static inline uint32_t cn_session_layout_ranks(const struct cn_session_layout *layout)
{
    uint32_t ranks = 0;

    for (uint32_t p = 0; p < layout->count; p++)
        ranks |= 1u << layout->ranks[p];
    return ranks;
}

// Measures the links, if a rule of a set or the job needs to know them (session_links.c).
cn_err cn_session_find_links(struct cn_session *session, struct cn_collective *collective);

// Writes the names of members: "board-1 board-2".
void cn_session_name_ranks(const struct cn_session *session, uint32_t ranks, char *text,
                           size_t size);

// Decides who trains the next step. A member that is to train and lacks the others' state takes it.
// Call it before each step.
cn_err cn_session_plan_step(struct cn_session *session, struct cn_collective *collective);

// Gives all members the state of those that train. Does nothing where all members trained.
cn_err cn_session_catch_up(struct cn_session *session, struct cn_collective *collective);

// cn_session_mark_trained notes after a step that only the members that trained have the newest
// state. cn_session_mark_synced notes that all members hold the same state.
void cn_session_mark_trained(struct cn_session *session);
void cn_session_mark_synced(struct cn_session *session);

// With "parallel: auto", chooses the layout without a cut for the members in train, on all members
// alike. Does nothing for other jobs, and if it has been chosen for these members.
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

// Sets the plan in which all members train the same number of micro-batches.
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

// Returns whether this board trains with a share now, or with a part of the model.
bool cn_session_is_sharded(const struct cn_session *session);

// Gives the trainer the plan's share of the held state, with memory for this share only.
cn_err cn_session_take_share(struct cn_session *session, struct cn_collective *collective);

// Returns this board's piece of a bucket of gradients that begins at `first`.
struct cn_trainer_piece cn_session_own_piece(const struct cn_session *session, uint32_t bucket,
                                             size_t first);

// Makes share number `shard` the trainer's. Its rows are undefined until the held state is loaded.
cn_err cn_session_set_share(struct cn_session *session, uint32_t shards, uint32_t shard);

// Returns whether each micro-batch is reduced separately, as from stage 2 on. Then
// cn_session_accumulate_shared accumulates a step; first is the number of its first batch.
bool cn_session_shares_gradients(const struct cn_session *session);
cn_err cn_session_accumulate_shared(struct cn_session *session, uint64_t first,
                                    struct cn_metrics *metrics);

// Returns the exchange between the members that hold a model, or a part of it, together.
struct cn_trainer_exchange cn_session_exchange(struct cn_session *session);

// Checks this board's share of the reduced gradient before the vote. Sets *finite to false if a
// number of it is not finite.
cn_err cn_session_check_share(struct cn_session *session, struct cn_collective *collective,
                              bool *finite);

// Adds up the squares of a gradient of which each member has a share, from stage 2 on.
cn_err cn_session_sum_squares(struct cn_session *session, struct cn_collective *collective,
                              double weight, double *squares);

// Clips the share by the norm of the whole gradient. Call it after the vote, from stage 2 on.
cn_err cn_session_clip_share(struct cn_session *session, struct cn_collective *collective,
                             double weight);

// Gathers the weights of all shares after the optimizer.
cn_err cn_session_gather_weights(struct cn_session *session, struct cn_collective *collective);

// Gathers one row of the state from all shares. row has room for all of its values.
enum cn_session_row { CN_ROW_WEIGHTS, CN_ROW_OPTIMIZER, CN_ROW_SECOND };
cn_err cn_session_gather_row(struct cn_session *session, struct cn_collective *collective,
                             enum cn_session_row what, float *row);

// As cn_session_gather_row, of what the trainer's shares hold together: of a part of a model the
// row of this part. The values of the row are zeros before.
cn_err cn_session_gather_shares(struct cn_session *session, struct cn_collective *collective,
                                enum cn_session_row what, float *row);

// In stage 3, sets held.weights to the trained weights at the end of a round.
cn_err cn_session_bring_weights(struct cn_session *session, struct cn_collective *collective);

// Writes the trained weights to `to`. In stage 3 call cn_session_bring_weights before.
cn_err cn_session_get_weights(struct cn_session *session, float *to);

// --- session_recompute.c ---

// In stage 3, agrees with the members that hold the model, or a part of it, together on what a step
// computes again: the least that fits all of them. Opens the trainer again if it computes less or
// more. Its share and its state are then undefined, and *opened is true. CN_ENOMEM, with a line in
// the log, if nothing fits all. Call it when the plan's sets are prepared.
cn_err cn_session_agree_recompute(struct cn_session *session, struct cn_collective *collective,
                                  bool *opened);

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
// they become the held state. If whole is false, each member of a chain stores its part only
// (session_part_store.c). cn_session_store_due returns whether this board considers a store due;
// the vote tells all members, and whether one of them wants the whole state stored.
bool cn_session_store_due(const struct cn_session *session);
cn_err cn_session_store(struct cn_session *session, struct cn_collective *collective, bool whole);

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

// --- session_rows.c ---
//
// Where the model is cut into parts, no member needs its whole base while it has a version, nor its
// whole residual while it trains. Once these rows are stored they lie on the disk only. A save
// copies them from the state before, and other functions read them in pieces.

// Sets where rows that are allocated from now on lie, as the profile wants (memory.rows). Rows on
// the disk leave room for the stored state and for storage.reserve. Returns whether they lie on the
// disk. Where the disk cannot have them, the log says so once.
bool cn_session_place_rows(struct cn_session *session);

// Returns whether the disk still has the room that rows in files need. It is looked at once a
// second.
bool cn_session_has_room_for_rows(struct cn_session *session);

// Returns the most bytes that copies of the model take in memory beside the trainer, if this board
// trains the whole model, or else a share or a part of it; 0 where they lie in files.
uint64_t cn_session_copies(const struct cn_session *session, bool divided);

#define CN_ROWS_BASE (1u << CN_PART_BASE)
#define CN_ROWS_RESIDUAL (1u << CN_PART_RESIDUAL)
#define CN_ROWS_ALL (CN_ROWS_BASE | CN_ROWS_RESIDUAL)

// Notes that the disk has the rows of the held state, or that it has not, where the held state was
// replaced.
void cn_session_note_rows(struct cn_session *session, bool stored);

// Notes that a row in memory differs from the one on the disk.
void cn_session_change_row(struct cn_session *session, uint32_t row);

// Frees the rows that the disk has. Does nothing where the model is not cut.
void cn_session_let_rows_go(struct cn_session *session);

// Reads rows that were freed into memory again. CN_EWEDGED when the disk no longer has them.
cn_err cn_session_recall_rows(struct cn_session *session, uint32_t rows);

// Returns whether there is a base, in memory or on the disk.
bool cn_session_has_base(const struct cn_session *session);

// Opens the state that has the freed rows; *file is NULL where none was freed. Close it. CN_EWEDGED
// as above.
cn_err cn_session_open_rows(const struct cn_session *session, struct cn_checkpoint_file **file);

// Passes a row of an open state to put.
cn_err cn_session_copy_row(const struct cn_checkpoint_file *file, enum cn_checkpoint_part array,
                           size_t total, cn_checkpoint_put *put, void *to);

// Subtracts the base from a row of weights.
cn_err cn_session_subtract_base(const struct cn_session *session, float *weights);

// Saves the held state. The rows that are then on the disk are freed.
cn_err cn_session_save_held(struct cn_session *session);

// --- session_finish.c ---

// Waits for wait_ms. Returns true, at once, when the node is told to stop.
bool cn_session_is_stopped(const struct cn_session *session, int wait_ms);

// --- session_residual.c ---

// Largest value that a member may say waits to be sent: 64 times what one update can send.
#define CN_SESSION_WAITING_MAX (64 * CN_UPDATE_VALUE_MAX)

// Reduces a residual that has waited long: it was meant for weights that have changed since. Local
// tensors stay as they are.
void cn_session_decay_residual(struct cn_session *session);

// Returns whether it would have to be reduced, but is not whole (cn_session_gather_stale).
bool cn_session_has_stale_parts(const struct cn_session *session);

// Records the newest counted update. If the group delivered it without this board's frame, this
// board's residual was part of it and is forgotten.
void cn_session_note_newest(struct cn_session *session, const struct cn_decision *newest);

// Allocates a residual of zeros unless there is one.
cn_err cn_session_allocate_residual(struct cn_session *session);

// Drops the residual and the optimizer's state if the residual is of rounds before a rollback that
// this version names.
void cn_session_follow_rollback(struct cn_session *session,
                                const struct cn_session_version *version);

// Returns whether the job keeps tensors local to each group: update.local, update.statistics.
bool cn_session_has_local(const struct cn_session *session);

// Copies the group's own tensors into the weights of a version, if the job keeps tensors local.
void cn_session_localize(const struct cn_session *session, float *weights);

// --- session_live.c ---

// Tells all members the facts that change while boards train, if a rule of a set needs one.
cn_err cn_session_share_live(struct cn_session *session, struct cn_collective *collective);

// --- session_control.c ---

// Returns whether the job corrects gradients by control variates.
bool cn_session_corrects(const struct cn_session *session);

// Frees the control variates.
void cn_session_drop_control(struct cn_session *session);

// Prepares the control variates for a round: sets control.inverse, the inverse distance of the
// round's steps (variate.h). Drops the variates if the job has none any more.
void cn_session_begin_control(struct cn_session *session, uint32_t round, uint32_t steps);

// Adds the correction to the reduced gradient of a step, whose samples have this weight in all.
cn_err cn_session_correct(struct cn_session *session, double weight);

// Makes the group's new variate from the frame in the outbox, which was accepted.
cn_err cn_session_advance_control(struct cn_session *session);

// --- session_given_up.c ---

// Notes on the disk that the round of the held state is given up. Call tell_given_up when the state
// after it is stored as well, unless the disk is full: it sets config.given_up. So a board that was
// killed after it told the gateway says so again.
void cn_session_note_given_up(struct cn_session *session);
void cn_session_tell_given_up(const struct cn_session *session);

// Sets config.given_up if the stored state is that after a round that was given up.
void cn_session_recall_given_up(struct cn_session *session);

// --- session_update.c ---

// These allocate the optimizer's state of the checkpoint as zeros unless there is one, free it, and
// copy it from the trainer.
cn_err cn_session_allocate_optimizer(struct cn_session *session);
void cn_session_release_optimizer(struct cn_session *session);
cn_err cn_session_keep_optimizer(struct cn_session *session);

// Writes what the round has trained (weights - base) to `to`. Local tensors are taken relative
// to the residual, which holds their earlier part.
cn_err cn_session_change(struct cn_session *session, float *to);

// Sets the header of the round's update.
void cn_session_update_header(const struct cn_session *session, struct cn_update_header *header);

// Encodes change + residual by the rule of the round. The part that the frame leaves out becomes
// next_residual. Change and next_residual reuse the memory of the held weights and the residual, so
// no more rows are held than in a step. After CN_EDIVERGED and CN_ERANGE the residual is unchanged,
// but the held weights are not.
cn_err cn_session_encode(struct cn_session *session, struct cn_buffer *frame);

// Keeps the optimizer's momentum after the round, except where values were sent: momentum would
// send them again (momentum-factor masking, Lin et al. 2018).
cn_err cn_session_keep_momentum(struct cn_session *session);

// Writes the held version for applications, if it is held as a whole.
void cn_session_publish(struct cn_session *session);

// --- session_alone.c ---
//
// A session without a group and an aggregator: the weights of a round become the next version
// unchanged, and nothing is sent. So there is no copy of any row besides the trainer's: states move
// between its memory and the disk.

// Returns whether the board trains without a group and an aggregator.
bool cn_session_is_alone(const struct cn_session *session);

// Saves the held state with the trainer's rows. *saved is the disk's result; it fails no call. An
// error returned is the device's; the trainer's rows, the only ones, may then be torn.
cn_err cn_session_save_rows(struct cn_session *session, cn_err *saved);

// Reads the rows of a stored state, which is the held state, into the trainer. Rows that the file
// lacks keep their values.
cn_err cn_session_take_rows(struct cn_session *session, const struct cn_checkpoint_file *file);

// Lets the trainer continue with its rows from the step of the held state.
cn_err cn_session_resume_trainer(struct cn_session *session);
