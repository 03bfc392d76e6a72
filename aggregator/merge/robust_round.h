// robust_round.h - the stored updates of a round, opened side by side for a robust rule.
//
// The bytes stay on the disk: a cursor reads them block by block. Threading: none.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "aggregator/merge/caps.h"
#include "aggregator/merge/robust.h"
#include "runtime/port/store.h"

// A zeroed struct is empty, and deinit accepts it.
struct cn_robust_round {
    struct cn_robust_update *updates; // in the order in which they were added
    struct cn_robust_source *sources; // of the updates
    size_t count;
};

// Makes room for up to capacity updates.
cn_err cn_robust_round_init(struct cn_robust_round *round, size_t capacity);
void cn_robust_round_deinit(struct cn_robust_round *round);

// Opens an accepted update and compares its bytes with the ledger's digest. entry has
// its weight and its norms. Returns CN_ENOTFOUND when its file does not exist, and CN_EDIGEST when
// it holds something else.
cn_err cn_robust_round_add(struct cn_robust_round *round, struct cn_store *store,
                           const struct cn_ledger_contribution *accepted,
                           const struct cn_caps_entry *entry);

// Returns the sum of the weights of all updates.
uint64_t cn_robust_round_weight(const struct cn_robust_round *round);
