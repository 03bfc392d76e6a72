// downlinks.h - how versions of a run with `update.down.mode: auto` are encoded, in the ledger.
//
// The rule of a version is recorded before the version is made. So a restarted aggregator, replay
// and a second implementation encode it alike, whatever the links are then. Errors are those of
// ledger.h. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "runtime/profile/job.h"

struct cn_downlink {
    uint32_t version;
    struct cn_update_rule rule; // its encoding, never CN_UPDATE_AUTO
    uint32_t roomy;    // versions in a row, up to this one, that had room for a larger encoding
    uint64_t link_bps; // goodput that the rule was chosen for; 0: no group has measured it
    uint64_t budget;   // bytes that this goodput carries in the time for a version
    uint64_t size;     // bytes that the rule was expected to take
};

// Reads the row of a version. Returns CN_ENOTFOUND when it has none.
cn_err cn_downlinks_find(struct cn_ledger *ledger, uint32_t version, struct cn_downlink *downlink);
// Reads the newest row, of whichever version. Returns CN_ENOTFOUND when there is none.
cn_err cn_downlinks_newest(struct cn_ledger *ledger, struct cn_downlink *downlink);
// Reads the first of the rows, up to the newest one, that have the rule of the newest one. Returns
// 0 when there is none.
cn_err cn_downlinks_since(struct cn_ledger *ledger, uint32_t *version);
// Writes a row. Returns CN_EEXIST when the version has one.
cn_err cn_downlinks_add(struct cn_ledger *ledger, const struct cn_downlink *downlink);

#define CN_DOWNLINKS_RECENT 16 // versions whose updates tell how fast their groups' links are

// Reads the goodput in bit/s of the link that is slower than three quarters of the links: with n
// groups, that at place (n - 1) / 4, rounded down, counted from 0 at the slowest one. A group's
// goodput is what the newest of its updates says that says anything, among the updates of the 16
// versions up to `version`. Sets bps to 0 when no group has said anything.
cn_err cn_downlinks_goodput(struct cn_ledger *ledger, uint32_t version, uint64_t *bps);
