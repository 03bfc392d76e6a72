// job_reload.h - writes other values of the job into the ledger of a run.
//
// All values of a profile are taken or none. They hold from the next round on. Those that only the
// aggregator uses to end the open round hold for that round, too. So do those of `parallel` while
// it has no update, unless a value differs that may change only from one round to the next: a round
// that no board can train by its values would never end. The rows are one transaction, so a program
// that is killed has written all of them or nothing. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "runtime/base/diag.h"
#include "runtime/profile/profile.h"

struct cn_job_reload {
    uint32_t from_round; // the first round of the new values; 0: the newest ones do not differ
    // The open round, for which other values of rounds.quorum, rounds.over_select, rounds.deadline,
    // stop and parallel hold at once; 0: there are none.
    uint32_t open_round;
    bool new_optimizer;     // the server's optimizer differs: its state starts from zero
    struct cn_diag changed; // one line for each value that differs
    struct cn_diag at_once; // those of them that hold for the open round, too
    struct cn_diag refused; // one line for each reason why nothing was taken
    struct cn_diag warned;  // lines about values that were taken and that not all groups can use
};

// Compares the newest settings of the run with those of a profile, and writes the profile's. The
// caller has checked the profile. Returns CN_ECONFLICT when a value differs that must not change:
// refused has the reasons, and nothing is written.
cn_err cn_job_reload(struct cn_ledger *ledger, const struct cn_settings *settings,
                     struct cn_job_reload *reload);
