// selection.h - chooses the groups that are invited to a round.
//
// A live group that was left out longest comes first: the one whose last turn, of the last 64
// rounds, is the oldest. An invitation is a turn if an update of the group counted. A group that
// was late, or not waited for, keeps its turn once, and comes before those with an equally old
// turn. If it is late again, that invitation was its turn: a group behind a stuck link takes one
// place more, and no other before it delivers. Equal ones are ranked by SHA-256(seed | round |
// name). So all groups take turns, and the choice does not depend on the order in which they
// arrived. Groups whose boards all report a fault come last: they may be mended before the
// deadline, and others train meanwhile. Errors are those of ledger.h. Threading: that of the
// ledger.
#pragma once

#include "aggregator/roster/roster.h"

struct cn_selection {
    struct cn_ledger *ledger; // borrowed, as all pointers here
    const struct cn_roster *roster;
    uint64_t seed; // of the job
    uint32_t round;
    uint64_t now_ms;
    uint64_t live_ms; // a group that was heard within this time is live
};

// Counts the groups that may be invited (cn_roster_may_invite) and are worth a short wait: those
// that were here when the newest round began, by the clock, or came since. If begun_ms is 0, no
// round began yet and all groups are expected.
uint32_t cn_selection_expected(const struct cn_roster *roster, uint64_t begun_ms, uint64_t live_ms);
// Counts the groups that may be invited and were heard within live_ms.
uint32_t cn_selection_live(const struct cn_roster *roster, uint64_t now_ms, uint64_t live_ms);

// Invites at most count more live groups and records that in the ledger. Sets invited to their
// number, also on an error.
cn_err cn_selection_invite(const struct cn_selection *selection, uint32_t count, uint32_t *invited);
