// merge.h - makes a version from its parent and the accepted updates of its round.
//
// The result depends only on the stored files and the ledger, to the bit. So a restarted aggregator
// and replay reach the same digests. Threading: none.
#pragma once

#include "aggregator/store/model_store.h"
#include "runtime/profile/job.h"

// The updates of a round that stood out and were scaled down, capped or left out.
struct cn_merge_cuts {
    uint32_t round;
    uint32_t update_count;    // number of these updates; one may have its norm and its weight cut
    double norm;              // largest norm among these updates
    char group[CN_NAME_SIZE]; // group whose update has that norm
    char text[240];           // a sentence about that update, with its numbers
};

struct cn_merge_config {
    struct cn_store *store; // borrowed, as all pointers here
    struct cn_ledger *ledger;
    const struct cn_layout *layout;
    const struct cn_job *job;
    const uint8_t *graph; // digest of the model's graph
    const char *without;  // leaves out the update of this group; NULL: of none
    // Filled in by a merge of the running aggregator, which logs each cut and records in the ledger
    // what a robust rule refused. NULL for a replay: nothing is logged or recorded.
    struct cn_merge_cuts *cuts;
};

// Returns the rows of layout->total floats that a version's state has with this job: those of the
// server's optimizer, then those of the robust rule, then the server's control variate.
size_t cn_merge_state_rows(const struct cn_job *job);

// Makes version parent->number + 1 in next. Returns CN_ENOTFOUND when an update's file no longer
// exists, and CN_EDIGEST when it does not hold the accepted update. Returns CN_ERANGE when without
// leaves no update, and CN_EDIVERGED when the result is not finite. Returns CN_EFORMAT when the
// ledger has an update that is too old for the version. An error leaves next empty.
cn_err cn_merge_round(const struct cn_merge_config *config, const struct cn_model *parent,
                      struct cn_model *next);

// Gives next the parent's rows: those of the server's optimizer, then those of the robust rule,
// then the server's control variate. The merge then updates them. In the first round of an
// optimizer its rows and the rule's row have their initial values; in the first round of a rule,
// only the rule's row does; in the first round of an epoch of control variates, the variate does.
cn_err cn_merge_inherit_state(const struct cn_merge_config *config, const struct cn_model *parent,
                              struct cn_model *next);
