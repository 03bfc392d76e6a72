// tally.h - counts in the ledger what became of a group's updates, for people to read.
//
// No decision depends on these counts: rounds, versions and replay do not read them. Errors are
// those of ledger.h. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"

#define CN_TALLY_REASON 120

struct cn_tally {
    uint64_t accepted;
    uint64_t late;                // rounds that closed without an update of the invited group
    uint64_t rejected;            // rounds in which an update of the group was rejected
    uint32_t rejected_round;      // newest such round; 0: none
    char reason[CN_TALLY_REASON]; // reason of the rejection in rejected_round
    uint32_t judged_round;        // newest round in which a robust rule judged an update; 0: none
    double factor;                // how much the update of judged_round counted, from 0 to 1
    // Rounds in a row, up to judged_round, in which a robust rule refused an update of the group.
    uint32_t refused;
};

// Rounds in a row in which a robust rule refuses a group's updates before the operator is told.
#define CN_TALLY_REFUSED 5

// Counts a rejected update. Several rejections of one group in one round count as one, and the
// first reason stays. So a board that sends invalid updates cannot cause unlimited writes to the
// disk.
cn_err cn_tally_reject(struct cn_ledger *ledger, const char *group, uint32_t round,
                       const char *reason);

// Records how much the group's update of a round counted with a robust rule, and whether the rule
// refused it. Sets in_a_row to the number of rounds in a row, up to this one, in which it was
// refused.
cn_err cn_tally_judge(struct cn_ledger *ledger, const char *group, uint32_t round, double factor,
                      bool refused, uint32_t *in_a_row);

// Reads the group's counts. A group without any has zeros.
cn_err cn_tally_read(struct cn_ledger *ledger, const char *group, struct cn_tally *tally);

// Sets only judged_round, factor and refused, and these only if an update of the group was ever
// judged.
cn_err cn_tally_read_judged(struct cn_ledger *ledger, const char *group, struct cn_tally *tally);

// Records the number of boards that made the group's update of a round.
cn_err cn_tally_attend(struct cn_ledger *ledger, const char *group, uint32_t round,
                       uint32_t boards);

// Sums the number of boards that made the updates of the version with a round's number. A group
// that did not report a number counts as one.
cn_err cn_tally_boards(struct cn_ledger *ledger, uint32_t round, uint32_t *boards);
