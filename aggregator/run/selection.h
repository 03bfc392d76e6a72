// selection.h - chooses the groups that are invited to a round.
//
// Live groups are ranked by SHA-256(seed | round | name). So the choice is fair over the rounds and
// does not depend on the order in which groups arrived.
#pragma once

#include "aggregator/store/roster.h"

struct cn_selection {
    struct cn_ledger *ledger;
    const struct cn_roster *roster;
    uint64_t seed; // of the job
    uint32_t round;
    uint64_t now_ms;
    uint64_t live_ms; // a group that was heard within this time is live
};

// Counts the groups that were heard within live_ms.
uint32_t cn_selection_live(const struct cn_roster *roster, uint64_t now_ms, uint64_t live_ms);

// Invites at most count more live groups and records that in the ledger. Sets invited to their
// number, also on an error.
cn_err cn_selection_invite(const struct cn_selection *selection, uint32_t count, uint32_t *invited);
