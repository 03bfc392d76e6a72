// ancestry.h - which versions the newest one comes from, as the rulings say.
//
// A rollback makes a version with the weights of an earlier one, its source. It gives up the
// versions between the two: the newest version does not come from them. Only rollbacks that the
// newest version comes from count. If a later rollback has its source before an earlier rollback's
// version, the earlier one counts no longer. Errors are those of ledger.h. Threading: that of the
// ledger.
#pragma once

#include "aggregator/ledger/rulings.h"

// Finds the version whose weights a version began with: the source of its ruling, else the version
// before it. Sets *ruled when there is a ruling. Returns CN_EFORMAT when the source is not older.
cn_err cn_ancestry_parent(struct cn_ledger *ledger, uint32_t version, uint32_t *parent,
                          bool *ruled);

struct cn_ancestry_gap {
    uint32_t source, version; // of a rollback; the versions between the two were given up
};

// Finds the first gap whose version is newer than number. Returns CN_ENOTFOUND when there is none,
// CN_EFORMAT when its source is not older than its version.
cn_err cn_ancestry_find_gap(struct cn_ledger *ledger, uint32_t number, struct cn_ancestry_gap *gap);
