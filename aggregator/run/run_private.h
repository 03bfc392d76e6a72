// run_private.h - the state of the run, which its files share.
//
// run.c has the phases, and run_merge.c makes the version of a round. run_updates.c tells boards
// about the run and judges their updates. Threading: none.
#pragma once

#include "aggregator/merge/ruled.h"
#include "aggregator/run/run.h"
#include "aggregator/run/waiting.h"
#include "runtime/base/log_limit.h"

// How far the gate is with the version that is being made.
enum cn_judging {
    CN_JUDGE_DUE,      // to be measured
    CN_JUDGE_MEASURES, // its evaluation runs
    CN_JUDGED,         // may be stored: it, or after a refusal the version made in its place
};

struct cn_run {
    struct cn_run_config config;
    enum cn_run_phase phase;
    uint32_t round;          // OPEN, CLOSING: the ledger's newest round; otherwise the next one
    uint32_t accepted;       // contributions to the round
    uint32_t selected;       // groups invited to the round
    uint32_t wanted;         // groups to invite; grows when a deadline passes
    uint64_t now_ms;         // clock at the last tick
    uint64_t deadline_ms;    // clock; OPEN
    bool overdue;            // OPEN: a deadline has passed without the quorum
    uint64_t quorum_seen_ms; // clock; when GATHER saw enough groups; 0: not yet
    uint64_t retry_ms;       // clock; CLOSING: the merge is not tried before
    uint64_t invite_ms;      // clock; OPEN: when to look for more groups
    uint32_t rolled_back;    // newest version that a rollback made; 0: none
    uint32_t refused;        // newest version that the gate refused; 0: none
    uint32_t rollback_tries; // attempts to read the version of the rollback that waits
    uint64_t settings_ms;    // clock; when to look for other settings
    // CLOSING: the version that is being made, before it is stored. Empty: not made yet.
    struct cn_model candidate;
    enum cn_judging judging;
    struct cn_ruling ruling;         // of the candidate, if the gate refused it
    struct cn_ledger_metrics judged; // of the candidate's weights; count 0: not measured
    uint64_t merge_us;               // time that making and storing the candidate took so far
    uint32_t judge_tries;            // failed measurements of the candidate
    uint64_t judge_ms;               // clock; the candidate is not measured before
    uint32_t measured;               // newest version whose evaluation was started, if measured_any
    bool measured_any;
    bool measuring;                // an evaluation was running at the newest look
    struct cn_run_traffic base;    // bytes of earlier programs
    struct cn_waiting waiting;     // lines about groups that are awaited
    bool trouble_told;             // the log has the line about the merge that failed
    cn_err trouble;                // of the last attempt to make the version
    struct cn_log_quotas late;     // lines about late updates, by group
    struct cn_log_quotas rejected; // lines about refused updates, by group
    struct cn_log_quotas outliers; // lines about measurements, by group
    struct cn_merge_cuts cuts;     // of the newest version
    char warning[CN_RUN_WARNING];  // about the version that was measured last; "": none
    const char *end_reason;
    struct cn_run_counts counts;
    uint64_t opened_ms;  // clock; when this program opened the round; 0: an earlier program did
    uint64_t begun_ms;   // clock; when this program opened or took up its newest round; 0: none yet
    uint64_t measure_ms; // clock; when the evaluation under way was started
    struct cn_run_progress progress;
    struct cn_steering steering;     // what people ask of the run
    bool held;                       // cn_run_hold
    bool selects;                    // groups may be marked that rounds.select leaves out
    struct cn_round_control control; // OPEN: what boards are told of the round's control variates
    uint64_t held_ms;                // clock; OPEN: the last tick of a pause that holds it; 0: none
};

// Takes the settings of a round from the ledger, and tells boards when they differ from those
// before. open says that boards already train in the round: then only values that decide when it
// ends may change.
cn_err cn_run_load_settings(struct cn_run *run, uint32_t round, bool open);

// --- run_merge.c ---

// Makes the version of the round, which is closing, and stores it. Sets *made when it is stored.
// After an error that may pass, returns CN_OK and tries again in a later call.
cn_err cn_run_make_version(struct cn_run *run, uint64_t now_ms, bool *made);

// --- run_control.c ---

// Finds or begins the epoch of the round's control variates, and offers boards the server's. Does
// nothing but withdraw that offer if the job has none.
cn_err cn_run_open_control(struct cn_run *run);

// --- run.c ---

// Stores a result of the evaluation of a stored version. Sets *idle when no evaluation is running.
cn_err cn_run_store_result(struct cn_run *run, uint64_t now_ms, bool *idle);
// Reads the bytes of the whole run: those of earlier programs and of this one.
void cn_run_read_traffic(const struct cn_run *run, struct cn_run_traffic *traffic);

// --- watch_loss.c ---

// Sets run->warning when a version's loss is above its parent's by more than three times that loss;
// clears it otherwise. metrics is NULL when the loss is not finite.
void cn_run_watch_loss(struct cn_run *run, uint32_t number,
                       const struct cn_ledger_metrics *metrics);

// --- gate.c ---

// Has the gate judge the candidate. Call it until run->judging is CN_JUDGED. A candidate that is
// refused is replaced.
cn_err cn_run_gate(struct cn_run *run, const struct cn_merge_config *config, uint64_t now_ms);
// Call after the candidate was stored: records its measurement, and raises the alarm when versions
// in a row were refused.
void cn_run_note_judged(struct cn_run *run, bool refused);

// --- rollback.c ---

// Carries out a rollback that waits. If no round is open, first opens the one that the rollback
// ends: the settings of an open round are final. Gives the rollback up when its version cannot be
// read. Sets *done when the newest version is another one now. Call it only while no version is
// being made. Returns CN_EAGAIN after a lack of memory.
cn_err cn_run_roll_back(struct cn_run *run, bool *done);

// --- steered.c ---

// Says whether a round may be opened: the run is not paused, and the program does not leave.
bool cn_run_opens_rounds(const struct cn_run *run);
// Says whether the open round must not be closed now. Its deadline then waits, too.
bool cn_run_is_held(struct cn_run *run, uint64_t now_ms);
// Adds the time that people gave the open round to its deadline, which a restart has set again.
cn_err cn_run_recover_deadline(struct cn_run *run);
