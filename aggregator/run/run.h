// run.h - the run as a state machine: opens rounds, invites groups, closes, merges and ends.
//
//   GATHER --enough groups are heard--> OPEN --quorum--> CLOSING --version is durable--> MEASURE
//      ^                                 deadline without quorum: extended                  |
//      +------------------------------------------------------------------------------------+
//                                                                 ENDED <--the run is over--+
//
// All state that matters is in the ledger, so opening the run is recovery. Time is an argument, so
// a test can run the whole machine under a fake clock. Deadlines start again with the program,
// because no clock survives a restart. Without an evaluation CLOSING leads to GATHER or ENDED
// directly. Threading: none. Nothing blocks longer than a merge.
#pragma once

#include "aggregator/ledger/steering.h"
#include "aggregator/merge/merge.h"
#include "aggregator/roster/roster.h"
#include "aggregator/run/live_job.h"
#include "aggregator/run/run_counts.h"
#include "aggregator/run/score.h"
#include "aggregator/store/model_store.h"
#include "aggregator/store/spool.h"
#include "runtime/port/link.h"
#include "runtime/update/update.h"

enum cn_run_phase {
    CN_RUN_GATHER,  // waits for groups
    CN_RUN_OPEN,    // takes updates
    CN_RUN_CLOSING, // makes the version, and retries after an error
    CN_RUN_MEASURE, // the version is evaluated before the next round may open
    CN_RUN_ENDED,
};

// Evaluates a version beside the run; see evaluate.h. Both functions must be set.
struct cn_run_measure {
    void *context;
    // Starts evaluating a version. Returns CN_EAGAIN while another version is being evaluated.
    cn_err (*start)(void *context, uint32_t version, const float *weights, uint64_t now_ms);
    // Returns CN_OK with a result, CN_EAGAIN while the evaluation runs, CN_ENOTFOUND when none was
    // started. Any other error ends the evaluation; version is set in that case, too.
    cn_err (*poll)(void *context, uint64_t now_ms, uint32_t *version,
                   struct cn_ledger_metrics *metrics);
};

// Bytes that came in from boards and went out to them.
struct cn_run_traffic {
    struct cn_link_bytes in, out;
};

struct cn_run_config {
    const struct cn_job *job;
    // Takes the ledger's settings into job when they change; NULL: job does not change.
    struct cn_live_job *live;
    struct cn_ledger *ledger; // borrowed, as all pointers here
    struct cn_store *store;
    struct cn_roster *roster;
    struct cn_spool *spool;
    struct cn_model_store *models;
    const struct cn_run_measure *measure; // NULL: the job has no central set
    uint64_t live_ms;                     // a group that was heard within this time can be invited
    // How long to wait for more groups than the quorum before a round opens.
    uint64_t settle_ms;
    // Bytes that earlier programs counted. If the ledger has a larger number of bytes of messages,
    // that number is taken.
    struct cn_run_traffic earlier;
    void *context; // passed to both functions below
    // Called when the round as boards see it has changed.
    void (*changed)(void *context);
    // Reads the bytes since the program started.
    void (*traffic)(void *context, struct cn_run_traffic *traffic);
};

#define CN_RUN_WARNING 160

// The state of a run, for people.
struct cn_run_state {
    enum cn_run_phase phase;
    uint32_t round;        // the round under way, else the next one
    uint32_t selected;     // groups that were invited to the round; asynchronous: cn_async_invited
    uint32_t accepted;     // updates that were accepted in the round
    uint64_t remaining_ms; // until the deadline; 0 unless a round is open
    uint64_t settling_ms;  // until a round opens without the groups that are not here; 0: it does
                           // not wait
    uint32_t wanted;       // groups that are of use to the run now; UINT32_MAX: all
    bool overdue;          // the open round passed a deadline without its quorum
    struct cn_run_traffic traffic; // of the whole run, over restarts
    struct cn_merge_cuts cuts;     // of the newest version, if this program made it
    char warning[CN_RUN_WARNING];  // set when a version is far worse than its parent; "": none
    cn_err trouble;                // why the round's version is not made yet; CN_OK: no error
    bool measuring;                // a version is being measured on the central set
    uint32_t oldest;               // oldest round of which an update counts
    const char *end_reason;        // why the run ended; NULL before ENDED
    struct cn_run_progress progress;
    struct cn_steering steering; // what people ask of the run
};

struct cn_run;

// Opens the run where the ledger says it stopped.
cn_err cn_run_open(const struct cn_run_config *config, uint64_t now_ms, struct cn_run **run);
void cn_run_close(struct cn_run *run);

// Does what is due. Call it about every 50 ms. After CN_EAGAIN, CN_ENOSPC or CN_EIO, call it again
// later. Other errors do not pass by themselves.
cn_err cn_run_tick(struct cn_run *run, uint64_t now_ms);

void cn_run_get_state(const struct cn_run *run, uint64_t now_ms, struct cn_run_state *state);

// What a group is to the round under way.
enum cn_run_use {
    CN_RUN_UNUSED,  // it is not invited, or no round is open
    CN_RUN_AWAITED, // it may serve no other job: its update is due, or the run is asynchronous
    CN_RUN_DONE,    // its update is accepted
};

cn_err cn_run_use_of(const struct cn_run *run, const char *group, enum cn_run_use *use);

// Returns the oldest round of which an update counts for the version of round next; in a
// synchronous run that is next itself. rolled_back is the newest version that a rollback made; 0:
// none.
uint32_t cn_run_oldest_round(const struct cn_job *job, uint32_t next, uint32_t rolled_back);

// Returns what was counted since the run was opened. It is valid until close.
const struct cn_run_counts *cn_run_count(const struct cn_run *run);

// Describes the round as this group sees it.
cn_err cn_run_describe(struct cn_run *run, const char *group, uint64_t now_ms,
                       struct cn_round_info *info);

// Decides about a declared frame before its first byte. status->decided is false when the frame may
// be sent. Otherwise status has the verdict, and a reason for the board's log. Returns CN_EBUSY
// when the frame will count, but not before the next buffer of an asynchronous run is open.
cn_err cn_run_judge(struct cn_run *run, const char *group,
                    const struct cn_declare_request *declared, struct cn_upload_status *status);

// Logs and counts an update that was refused before it could be judged. declared is NULL if it
// cannot be read.
void cn_run_refuse(struct cn_run *run, const char *group, const struct cn_declare_request *declared,
                   const char *reason);

// Logs something odd about an update that counts all the same. The lines of a group are limited.
void cn_run_note_odd(struct cn_run *run, const char *group, const char *what);

// Returns the seconds after which a board declares its update again after CN_EBUSY.
uint32_t cn_run_later_s(const struct cn_run *run);

// Decides on a complete upload: checks the frame, makes it durable, and writes the ledger.
// CN_EAGAIN with chunks missing again means that lent chunks were wrong. CN_EDIGEST: the bytes are
// not what was declared. CN_EBUSY: as above; the upload stays. After CN_ENOSPC, CN_EIO or another
// CN_EAGAIN the board should come back later. The call may end the upload: find it again before
// further use.
cn_err cn_run_accept(struct cn_run *run, struct cn_spooled *upload,
                     struct cn_upload_status *status);

// --- steering: what people ask of the run while it goes on ---

// Reads from the ledger what people ask. Call it after a change there; opening a run does it.
cn_err cn_run_follow_steering(struct cn_run *run);
// Opens no other round while held is true, whatever the ledger says.
void cn_run_hold(struct cn_run *run, bool held);
// Gives the open round more time, after the ledger noted it.
void cn_run_extend_round(struct cn_run *run, uint64_t extend_ms);
// Says why the round cannot be closed with the updates that it has; NULL: it can.
const char *cn_run_refuse_close(const struct cn_run *run);
// Goes on to CLOSING, after the ledger closed the open round.
void cn_run_enter_closing(struct cn_run *run);
