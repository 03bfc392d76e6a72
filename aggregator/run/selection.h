// selection.h - which groups are invited to a round.
//
// Live groups are ranked by SHA-256(seed | round | name): the choice is fair over the rounds and
// does not depend on who came first.
#pragma once

#include "aggregator/store/roster.h"

struct cn_selection {
    struct cn_ledger *ledger;
    const struct cn_roster *roster;
    uint64_t seed;
    uint32_t round;
    uint64_t now_ms;
    uint64_t live_ms;
};

// Groups heard within live_ms.
uint32_t cn_selection_live(const struct cn_roster *roster, uint64_t now_ms, uint64_t live_ms);

// Invites up to count more live groups and writes that to the ledger. invited says how many it
// found.
cn_err cn_selection_invite(const struct cn_selection *selection, uint32_t count, uint32_t *invited);
