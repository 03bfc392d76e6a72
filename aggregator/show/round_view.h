// round_view.h - the newest round as the ledger has it, read once and then asked for each group.
//
// Threading: none.
#pragma once

#include "aggregator/run/score.h"
#include "aggregator/store/history.h"

struct cn_round_view {
    struct cn_ledger_round round;     // number 0: none yet
    struct cn_ledger_version version; // newest version
    bool has_version;                 // whether version is set
    struct cn_run_progress progress;
    uint32_t groups;                  // groups with enrolled boards
    uint32_t invited;                 // groups invited to the round
    uint32_t accepted;                // updates accepted in the round
    const char *end_reason;           // why the run is over; NULL: it is not
    struct cn_history_entry *entries; // owned; a group each, in the order of names
    size_t count;
};

// Reads the view. progress is what is known about the versions so far; NULL: it is read, too. Call
// deinit in any case.
cn_err cn_round_view_load(struct cn_ledger *ledger, const struct cn_job *job,
                          const struct cn_run_progress *progress, struct cn_round_view *view);
void cn_round_view_deinit(struct cn_round_view *view);

// Returns what became of the group's invitation to the round, or NULL if it was not invited.
const struct cn_history_entry *cn_round_view_find(const struct cn_round_view *view,
                                                  const char *group);
