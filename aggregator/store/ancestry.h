// ancestry.h - which versions the newest one comes from, as the rulings say.
//
// A rollback makes a version with the weights of an earlier one, its source. It gives up the
// versions between the two. A later rollback to a version before that gives up this rollback, too;
// one to a version between the two takes back what led to it. Errors are those of ledger.h.
// Threading: that of the ledger.
#pragma once

#include "aggregator/store/rulings.h"

struct cn_ancestry_gap {
    uint32_t source, version; // the versions between them were given up
};

// Finds the first gap before a version that is newer than number. Returns CN_ENOTFOUND when no gap
// follows.
cn_err cn_ancestry_find_gap(struct cn_ledger *ledger, uint32_t number, struct cn_ancestry_gap *gap);
