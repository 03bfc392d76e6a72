// tally.h - what became of a group's updates, counted in the ledger for people.
//
// Nothing here decides: rounds, versions and replay do not read it. Errors are those of ledger.h.
#pragma once

#include "aggregator/store/ledger.h"

#define CN_TALLY_REASON 120

struct cn_tally {
    uint64_t accepted;
    uint64_t late;                // rounds it was invited to that closed without an update of it
    uint64_t rejected;            // rounds with a rejected update of it
    uint32_t rejected_round;      // the newest of these; 0: none
    char reason[CN_TALLY_REASON]; // of that rejection
};

// Counts a rejected update. Several of one group and round count as one, whose first reason stays:
// a board that sends rubbish must not write to the disk at will.
cn_err cn_tally_reject(struct cn_ledger *ledger, const char *group, uint32_t round,
                       const char *reason);

cn_err cn_tally_read(struct cn_ledger *ledger, const char *group, struct cn_tally *tally);

// Notes how many boards made the group's update of a round.
cn_err cn_tally_attend(struct cn_ledger *ledger, const char *group, uint32_t round,
                       uint32_t boards);

// How many boards made the accepted updates of a round. A group that did not say counts as one.
cn_err cn_tally_boards(struct cn_ledger *ledger, uint32_t round, uint32_t *boards);
