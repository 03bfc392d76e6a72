// control_epochs.h - the epochs of control variates (runtime/update/variate.h), in the ledger.
//
// The server's variate is the mean of those of all groups. So all of them begin again with zeros,
// in another epoch, when that mean could no longer be right. Rounds and versions of a job without
// control variates have no epoch. Errors are those of ledger.h. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"

#define CN_CONTROL_TEXT 128

struct cn_control_epoch {
    uint32_t begun;  // round that began it, which names it
    uint32_t groups; // groups that were enrolled then
};

// Finds or begins the epoch of a round that was opened, and records that the round belongs to it.
// An epoch begins
//
//   - if the round before was of no epoch;
//   - if the enrolled groups are others than when the epoch before began;
//   - if a group's update of the round before was not made with its whole variate, since the group
//     has lost it;
//   - if the version before was not made of updates (rulings.h).
//
// why gets the reason, for people, or "" if the epoch before goes on. A second call for the same
// round changes nothing.
cn_err cn_control_epoch_open(struct cn_ledger *ledger, uint32_t round,
                             struct cn_control_epoch *epoch, char why[CN_CONTROL_TEXT]);

// Reads the epoch of a round. Returns CN_ENOTFOUND when it has none.
cn_err cn_control_epoch_find(struct cn_ledger *ledger, uint32_t round,
                             struct cn_control_epoch *epoch);
