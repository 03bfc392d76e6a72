// round_view.h - the newest round as the ledger has it, read once and then asked for each group.
//
// Threading: none.
#pragma once

#include "aggregator/ledger/history.h"
#include "aggregator/ledger/steering.h"
#include "aggregator/roster/last_error.h"
#include "aggregator/run/score.h"

// What a board last said of why it cannot train; it may train since.
struct cn_round_error {
    char board[CN_NAME_SIZE];
    char text[CN_FAULT_SIZE];
};

struct cn_round_view {
    struct cn_ledger_round round;     // number 0: none yet
    struct cn_ledger_version version; // newest version
    bool has_version;                 // whether version is set
    struct cn_run_progress progress;
    char select[CN_RULE_SIZE];        // the job's rule for groups; "": none
    uint32_t oldest;                  // oldest round of which an update counts
    uint32_t groups;                  // groups with enrolled boards
    uint32_t invited;                 // groups invited to the round, as in cn_run_state
    uint32_t accepted;                // updates accepted in the round
    const char *end_reason;           // why the run is over; NULL: it is not
    struct cn_history_entry *entries; // owned; a group each, in the order of names
    size_t count;
    struct cn_history_turn *turns; // owned; in the order of names; only if groups take turns
    size_t turn_count;
    struct cn_steering steering;     // what people ask of the run
    struct cn_steered_round steered; // what people did to the round
    char (*drained)[CN_NAME_SIZE];   // owned; groups that people drained, in the order of names
    size_t drained_count;
    struct cn_round_error *errors; // owned; in the order of the boards' names
    size_t error_count;
};

// Reads the view. progress is what is known about the versions so far; NULL: it is read, too. Call
// deinit in any case.
cn_err cn_round_view_load(struct cn_ledger *ledger, const struct cn_job *job,
                          const struct cn_run_progress *progress, struct cn_round_view *view);
void cn_round_view_deinit(struct cn_round_view *view);

// Returns what became of the group's invitation to the round, or NULL if it was not invited.
const struct cn_history_entry *cn_round_view_find(const struct cn_round_view *view,
                                                  const char *group);

// Returns the group's newest invitation to an earlier round; NULL: to none of the last
// CN_HISTORY_TURNS, or all groups are invited.
const struct cn_history_turn *cn_round_view_turn(const struct cn_round_view *view,
                                                 const char *group);

// Returns what a board last said of why it cannot train; NULL: it never said so.
const char *cn_round_view_error(const struct cn_round_view *view, const char *board);

// Says whether people drained the group: it is not invited to later rounds.
bool cn_round_view_is_drained(const struct cn_round_view *view, const char *group);
