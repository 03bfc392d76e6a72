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
#include "runtime/port/collective.h"
#include "runtime/port/link.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/round.h"
#include "runtime/round/upkeep/progress.h"

struct cn_batch;
struct cn_checkpoint;
struct cn_compute_ops;
struct cn_dataset;
struct cn_layout;
struct cn_onnx;
struct cn_onnx_file;
struct cn_session; // session_private.h
struct cn_timeline;
struct cn_trainer;

#define CN_SESSION_BATCHES 3 // micro-batches in memory: two of the reader, one that is measured
#define CN_STEP_VOTES (12 + 2 * CN_GROUP_MAX) // votes of a step; session_step.c names them

// Facts of this board that change while it trains. cn_board_facts has their units; 0: not known.
struct cn_live_facts {
    atomic_uint battery, left_kib;
};

struct cn_session_config {
    const struct cn_settings *settings; // settings of this board; borrowed, like all pointers here
    const struct cn_member *members;    // members at their current addresses; NULL: as in settings
    const struct cn_job *job;           // job of the run
    const struct cn_compute_ops *compute;
    struct cn_store *store;
    struct cn_store *published; // where applications find the newest model; NULL: in store
    const uint8_t *model;       // the ONNX file; its weights do not matter
    size_t model_size;
    const struct cn_onnx_file *file; // file of the model, whose pages may leave memory; NULL: none
    uint8_t graph[CN_DIGEST_SIZE];
    uint8_t base[CN_DIGEST_SIZE]; // digest of the job's frozen tensors; zeros: not named
    uint64_t run;
    uint64_t older_run; // states of this run are accepted as those of run; 0: none
    uint32_t lineage;
    const char *group;            // name of the sender of updates
    bool alone;                   // without group and aggregator: only the trainer holds rows
    bool anew;                    // start from the beginning and ignore a stored state
    bool replaces;                // alone: a stored state of another run may be overwritten
    bool keeps;                   // results are there that may not be replaced without a state
    bool sequential;              // samples in file order
    struct cn_timeline *timeline; // of all members' steps; NULL for none
    int stop_fd;                  // readable when the caller wants to stop; -1 for none
    atomic_int *disk;             // set to the result of each store of the state; NULL: not wanted
    // Set to the round that was given up because a loss or a weight change was not finite or too
    // large. A session that opens with the state after such a round sets it again. Set to 0 when
    // the steps of a later round are done. NULL: not wanted.
    atomic_uint *given_up;
    struct cn_live_facts *live; // set by another thread; NULL: these facts are unknown
};

// Returns what a board knows of its machine. capability: compute capability * 10; 0: no GPU. The
// facts that change are 0.
struct cn_board_facts cn_session_board_facts(const struct cn_settings *settings,
                                             uint32_t capability);

// Opens model and data, and continues from the stored state if it belongs to this run. Reports a
// damaged slot, data that does not fit and unsupported ops in diag. Returns CN_ECONFLICT, without
// changing anything, when a board alone has a stored state of another run that must stay, and
// CN_EEXIST, in the same way, when there is no state that can be used though config.keeps is set.
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
    // The newest version that went back to an earlier one (a rollback or a refusal); 0: none.
    // Taking it or a later version empties a residual of rounds before it.
    uint32_t forget;
};

// Computes the digest of the version that a frame makes. The base of the next delta, or a digest
// from elsewhere, tells whether it is right. Returns the errors of cn_session_check_version.
cn_err cn_session_resolve_version(const struct cn_session *session,
                                  struct cn_session_version *version);

// Returns whether a version of this model can have size bytes. A full version has a fixed size; a
// frame has an upper limit. Logs a refused size once. Call it before allocating memory for the
// version.
bool cn_session_may_take(struct cn_session *session, uint32_t number, bool delta, uint64_t size);

// Returns whether a version can come from a file of this board: the profile names one, and the
// session has no version.
bool cn_session_wants_base(const struct cn_session *session);

// Reads version 0 from the file that the profile's base names; the caller frees bytes, which
// version points to. Returns CN_EDIGEST, with both digests in diag, when the file is another model
// or has other frozen tensors than the job.
cn_err cn_session_read_base(const struct cn_session *session, struct cn_diag *diag,
                            struct cn_session_version *version, uint8_t **bytes);

// Checks that version 0 can be read, if it is wanted. Errors as above, and a line in diag for each.
cn_err cn_session_check_base(const struct cn_session *session, struct cn_diag *diag);

// Checks that a version can be installed, without changing anything. Returns CN_EDIGEST,
// CN_EFORMAT, or CN_ESTALE when a delta does not start from the held base.
cn_err cn_session_check_version(const struct cn_session *session,
                                const struct cn_session_version *version);

// Measures a version on the held-out samples of all members, makes it the base and replaces
// model.current.onnx. Durable. An error of the collective changes nothing.
cn_err cn_session_install(struct cn_session *session, struct cn_collective *collective,
                          const struct cn_session_version *version);

// For a board alone: makes the trainer's weights the version with this number, as install does, but
// stores nothing: call cn_session_save. At first these are the model's own weights.
cn_err cn_session_adopt(struct cn_session *session, struct cn_collective *collective,
                        uint32_t number);

// Returns whether the session has the control variates that a round on the held base needs; true if
// the job has none.
bool cn_session_has_control(const struct cn_session *session);

// Checks the server's control variate for the held base, as it arrived. Errors of
// cn_variate_decode.
cn_err cn_session_check_control(const struct cn_session *session, const uint8_t *bytes,
                                size_t size);

// Takes the server's control variate for the held base; size 0: zeros. If the epoch is another one,
// the group's own variate is zeros again. Durable. Returns CN_EFORMAT between begin and decide.
cn_err cn_session_take_control(struct cn_session *session, uint32_t epoch, const uint8_t *bytes,
                               size_t size);

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
// the same result. Returns CN_EFORMAT for an order that no session makes, and where
// cn_session_gather_stale was not called before.
cn_err cn_session_begin(struct cn_session *session, const struct cn_round_order *order);

// Enters the epoch of the view: the held state gets its number. With several members, gradients
// travel during the backward pass until cn_session_leave. Otherwise a step reduces its gradients at
// its end.
cn_err cn_session_join(struct cn_session *session, struct cn_collective *collective,
                       const struct cn_view *view);
void cn_session_leave(struct cn_session *session);

// Exchanges the facts by which the members decide who trains (session_sets.c). Call it once in an
// epoch, after all members have one state. Makes no collective call if the job does not say how a
// group shares its work.
cn_err cn_session_exchange_facts(struct cn_session *session, struct cn_collective *collective,
                                 const struct cn_view *view);

// Return and set the bytes of gradients that are reduced at a time. The value is at first rank 0's
// own choice, later the choice in its votes. All members set the same value, between two steps.
size_t cn_session_bucket(const struct cn_session *session);
cn_err cn_session_set_bucket(struct cn_session *session, size_t bucket);

// Sets the number format in which gradients travel, under the same conditions.
void cn_session_set_wire(struct cn_session *session, enum cn_number wire);

struct cn_step_flags {
    bool reform_requested; // in: this member asks to end the epoch and re-form; out: some member
                           // asks
    // In: the leader gives up the round; out: it was given up, and nothing was applied.
    bool abandon;
    struct cn_slow slow; // in: why this board may compute slower than it could
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

// Returns whether a chain that "parallel: auto" chose should be chosen again, since a board has
// become slower or quicker beside the others; logs it then. For the leader, between two rounds.
bool cn_session_wants_layout(const struct cn_session *session);

// Returns whether the members of this epoch are too few for a chain (parallel.pipeline): then no
// version can be measured and no step be trained until the next epoch.
bool cn_session_waits(const struct cn_session *session);

// Returns whether the round's steps are done.
bool cn_session_round_done(const struct cn_session *session);

// Encodes the update and secures it (cn_session_secure_outbox). Afterwards every member has the
// same update in its outbox. Returns CN_EDIGEST on a member whose frame differs from rank 0's: it
// must take the state of another member.
cn_err cn_session_finish(struct cn_session *session, struct cn_collective *collective);

// Stores the outbox on every member whose disk accepts it, and returns when it is durable on one. A
// frame may be sent only then, so that a power cut cannot lose it. While all disks are full it
// waits for room; returns CN_ECANCELED when stopped.
cn_err cn_session_secure_outbox(struct cn_session *session, struct cn_collective *collective);

// Where each member has what waits of its part only: wants_copies returns whether the members have
// not yet stored copies of their neighbours' parts in this epoch, and store_copies does it. The
// leader lets them do so while the update is sent. CN_EFORMAT where none are wanted.
bool cn_session_wants_copies(const struct cn_session *session);
cn_err cn_session_store_copies(struct cn_session *session, struct cn_collective *collective);

// Applies the outcome of the outbox. Rejected or late: the whole change goes into the residual.
// Accepted, or replaced by another member's update: only the part that the frame left out does. So
// no step counts twice. Durable.
cn_err cn_session_decide(struct cn_session *session, const struct cn_decision *decision);

// Gives every member the state and the trained weights of the members that train. All members call
// it before cn_session_abandon, unless the round's changes are lost.
cn_err cn_session_collect(struct cn_session *session, struct cn_collective *collective);

// Give every member the whole of what waits to be sent, where each has a part of it. Before a round
// begins only if it has waited so long that it decays. All members call gather_waiting before
// cn_session_abandon if the changes so far go into the residual, and gather_stale before
// cn_session_begin.
cn_err cn_session_gather_waiting(struct cn_session *session, struct cn_collective *collective);
cn_err cn_session_gather_stale(struct cn_session *session, struct cn_collective *collective);

// Gives up a begun round. The changes trained so far go into the residual. If decision says that
// another part of the group has delivered them, the residual is emptied; if decision is NULL, it
// stays as it was. A member that did not train has caught up before. Durable.
cn_err cn_session_abandon(struct cn_session *session, const struct cn_decision *decision);

// Saves the state if the last save is older than interval_ms. On a full disk it logs a warning and
// keeps the stored state.
cn_err cn_session_save(struct cn_session *session, uint64_t interval_ms);

// If the members have stored the parts of a state of this round with more steps than the held one,
// gives that state to all of them. Does nothing without a chain. Call it when all hold the same.
cn_err cn_session_take_parts(struct cn_session *session, struct cn_collective *collective,
                             const struct cn_view *view);

// Replaces the held state by that of another member, an encoded checkpoint. Durable. Returns
// CN_ERANGE when its round or version is above most, the newest that there can be.
cn_err cn_session_take(struct cn_session *session, const uint8_t *bytes, size_t size,
                       uint32_t most);

// Updates the checkpoint from the trainer, before encoding or saving it.
cn_err cn_session_snapshot(struct cn_session *session);

// Sets the fields of upload, which are zeros, to what was measured of the base and in the round.
// What the aggregator does not believe, such as a loss below 0, stays unmeasured. A held state may
// come from a member that lies.
void cn_session_fill_measured(const struct cn_session *session, struct cn_link_upload *upload);

// Fills in the fields of progress that a session knows; the others stay.
void cn_session_fill_progress(struct cn_session *session, struct cn_progress *progress);

// Returns the largest size of an encoded checkpoint of this model.
size_t cn_session_state_limit(const struct cn_session *session);

// --- what a session has: borrowed until it closes, and only for reading ---

const struct cn_session_config *cn_session_get_config(const struct cn_session *session);

// Returns the state that the session holds. Calls that change it say so above.
const struct cn_checkpoint *cn_session_held(const struct cn_session *session);

const struct cn_onnx *cn_session_onnx(const struct cn_session *session);

// Returns the trainer's layout with the job's rules for tensors.
const struct cn_layout *cn_session_layout(const struct cn_session *session);

const struct cn_dataset *cn_session_dataset(const struct cn_session *session);

// Returns the trainer of a board alone, which holds the only copy of its rows. A caller may read
// them, set them before the first round, and measure passes that it discards.
struct cn_trainer *cn_session_trainer(const struct cn_session *session);

// Returns the first batch of the training samples, in the session's own memory. Call it while no
// round trains.
const struct cn_batch *cn_session_first_batch(struct cn_session *session);

// Returns the measures of the version that was measured last, over the whole group.
const struct cn_scores *cn_session_scores(const struct cn_session *session);

// Returns the mean loss of the last step's samples.
double cn_session_step_loss(const struct cn_session *session);

// Returns the moving average of the time that a step computes; 0: not measured.
double cn_session_busy_ms(const struct cn_session *session);

// Returns the sums of the votes of the last step that was applied: CN_STEP_VOTES of them.
const float *cn_session_applied_votes(const struct cn_session *session);

// Returns the most bytes that copies of a model take beside the trainer of a board in a run with a
// gateway, if it trains the whole model, or else a share or a part of it.
uint64_t cn_session_most_copies(const struct cn_job *job, const struct cn_layout *layout,
                                bool divided);

// Allocates zeros for a state that other members give, or for a row of it; free them with
// cn_scratch_free. They lie in a file if the disk has room and the profile does not say otherwise
// (memory.rows), since the memory plan has no room for them.
void *cn_session_allocate_state(const struct cn_session *session, size_t size);

// A part of another member's state, from a transfer that was cut off (epoch_heal.h).
// cn_session_part returns it; it is empty if there is none. cn_session_keep_part takes the memory
// of another one in its place and empties part; with NULL it only frees the old one.
const struct cn_buffer *cn_session_part(const struct cn_session *session);
void cn_session_keep_part(struct cn_session *session, struct cn_buffer *part);
