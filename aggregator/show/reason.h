// reason.h - why a board is, or is not, in the round: one reason each, with a sentence for people.
//
// Threading: none.
#pragma once

#include "aggregator/show/live.h"
#include "aggregator/show/round_view.h"

#define CN_REASON_SIZE (CN_INSTANCES_TEXT + CN_FAULT_SIZE + 160)
// A board that was heard longer ago is silent.
#define CN_REASON_SILENT_MS 120000

// Down to CN_REASON_SILENT, the first reason that holds is given; the rest are looked at in the
// order of cn_reason_of.
enum cn_reason_kind {
    CN_REASON_REVOKED,
    CN_REASON_EXPECTED,  // not heard yet, and the aggregator started less than CN_REASON_SILENT_MS
                         // ago
    CN_REASON_NEVER,     // not heard since the aggregator started; detail: its last error. Without
                         // one only while the run goes on
    CN_REASON_TWICE,     // two processes use its key
    CN_REASON_FAILED,    // it cannot train, as it said
    CN_REASON_AHEAD,     // it holds a newer version than the ledger
    CN_REASON_OVER,      // the run is over
    CN_REASON_GONE,      // the run is over, and the board was not heard for CN_REASON_SILENT_MS, or
                         // its group misses it
    CN_REASON_PAUSED,    // it pauses by a rule of its profile, as it said
    CN_REASON_MISSING,   // its group misses it
    CN_REASON_SILENT,    // not heard for CN_REASON_SILENT_MS
    CN_REASON_STOPPED,   // no round is open: the aggregator is not running
    CN_REASON_QUORUM,    // no round is open: fewer groups are enrolled than the quorum
    CN_REASON_ELSEWHERE, // its group serves another job of the gateway
    CN_REASON_DRAINED,   // people asked that its group is not invited
    CN_REASON_RUN_PAUSED, // no round is open: people paused the run
    CN_REASON_MERGING,    // no round is open: the version of the last one is being made
    CN_REASON_WAITING,    // no round is open: it waits for more groups
    CN_REASON_RESTS,      // its group is not invited before its charge or bytes suffice
    CN_REASON_NEEDS,      // it cannot train without members that are missing, as it said
    CN_REASON_UNFIT,      // its group does not meet rounds.select
    CN_REASON_LEFT_OUT,   // its group was not invited
    CN_REASON_ACCEPTED,   // the update of its group is accepted
    CN_REASON_HALTED,     // in the round, but the aggregator is not running
    CN_REASON_AWAITED,    // the update of its group is awaited
};

struct cn_reason {
    enum cn_reason_kind kind;
    uint64_t since_ms;  // clock; 0: there is no such time
    const char *detail; // the board's error, or addresses; borrowed from the board; NULL: none
    uint64_t code;      // of the board's error: -cn_err; 0: not known
    bool turns;         // groups take turns, and an earlier round is known
    uint32_t invited, groups;           // number of invited groups, and of all groups
    const struct cn_history_turn *turn; // as in cn_round_view_turn; borrowed from the view
};

struct cn_reason_facts {
    const struct cn_round_view *view; // borrowed, as all pointers here
    const struct cn_live_state *live;
    uint32_t quorum;
    uint64_t now_ms;
};

// Finds the reason. found is NULL for a board that was not heard.
struct cn_reason cn_reason_of(const struct cn_reason_facts *facts,
                              const struct cn_ledger_board *board,
                              const struct cn_live_board *found);

// Writes the sentence. With ages, it says how long ago; otherwise it stays the same as time goes
// by.
void cn_reason_text(const struct cn_reason *reason, uint64_t now_ms, bool ages,
                    char text[CN_REASON_SIZE]);

// Returns the reason as a word: "failed", "awaited".
const char *cn_reason_word(enum cn_reason_kind kind);
