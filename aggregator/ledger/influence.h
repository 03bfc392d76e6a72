// influence.h - which versions a group has had a part in.
//
// A version has something of a group if it was made of an update of the group, or of a version that
// has something of the group: by merging, by a refusal (from its parent) or by a rollback (from the
// earlier version).
// Errors are those of ledger.h. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/rulings.h"

struct cn_influence {
    bool *touched;  // owned; of versions 0 to count - 1: whether the group has a part in it
    bool *sent;     // owned; whether an update of the group was accepted for the version
    uint32_t count; // versions
    uint32_t first; // first version with a part of the group; 0: none
    bool in_round;  // an update of the group waits in a round that has no version yet
};

// Reads the ledger. Updates of the group for versions before from do not count. Call deinit also
// after an error.
cn_err cn_influence_load(struct cn_ledger *ledger, const char *group, uint32_t from,
                         struct cn_influence *influence);
void cn_influence_deinit(struct cn_influence *influence);
