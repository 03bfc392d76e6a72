// history.h - reads from the ledger what became of each round, for people.
//
// Dates are milliseconds since 1970 by the machine's clock; 0: not recorded, by an older program.
// No decision depends on them. Errors are those of ledger.h. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "aggregator/ledger/tally.h"

// What became of the invitation of a group to a round.
struct cn_history_entry {
    char group[CN_NAME_SIZE];
    bool accepted;        // its update was accepted; size to behind are set only then
    uint64_t size;        // of the frame, in bytes
    uint64_t weight;      // samples that it counts for
    uint64_t accepted_ms; // date
    uint32_t behind;      // versions by which its base was too old; 0 in a synchronous run
    bool rejected;        // this is the newest round in which an update of the group was rejected
};

typedef cn_err cn_history_visit(void *context, const struct cn_history_entry *entry);
// Visits the groups that were invited to a round or whose update went into its version, in the
// order of names. An error of visit ends the walk and is returned.
cn_err cn_history_round(struct cn_ledger *ledger, uint32_t round, cn_history_visit *visit,
                        void *context);

#define CN_HISTORY_TURNS 64 // rounds that are looked at for a group's last invitation

struct cn_history_turn {
    char group[CN_NAME_SIZE];
    uint32_t round; // newest invitation
    bool late;      // no update of the group counted in that round
};

typedef cn_err cn_history_turn_visit(void *context, const struct cn_history_turn *turn);
// Visits the groups that were invited to one of the CN_HISTORY_TURNS rounds before round, in the
// order of names. An error of visit ends the walk and is returned.
cn_err cn_history_turns(struct cn_ledger *ledger, uint32_t round, cn_history_turn_visit *visit,
                        void *context);

// Reads what became of one group's invitation. Returns CN_ENOTFOUND when it was not invited.
cn_err cn_history_find(struct cn_ledger *ledger, uint32_t round, const char *group,
                       struct cn_history_entry *entry);

struct cn_history_dates {
    enum cn_ledger_state state;
    uint64_t opened_ms, closed_ms; // dates of the round
    uint64_t made_ms;              // date of its version
};

// Reads the dates of a round. Round 0 stands for the initial model and has made_ms only. Returns
// CN_ENOTFOUND when there is no such round.
cn_err cn_history_dates(struct cn_ledger *ledger, uint32_t round, struct cn_history_dates *dates);

// Sets *round_ms to the median time from one round's opening to the next one's, over the last
// rounds. Sets it to 0 when it is not known.
cn_err cn_history_pace(struct cn_ledger *ledger, uint64_t *round_ms);

struct cn_history_rejection {
    char group[CN_NAME_SIZE];
    uint32_t round; // the newest with a rejected update of the group
    char reason[CN_TALLY_REASON];
};

typedef cn_err cn_history_rejection_visit(void *context,
                                          const struct cn_history_rejection *rejection);
// Visits the groups of which an update was ever rejected, in the order of names. An error of visit
// ends the walk and is returned.
cn_err cn_history_rejections(struct cn_ledger *ledger, cn_history_rejection_visit *visit,
                             void *context);
