// merge.h - makes a version from its parent and the accepted updates of its round.
//
// The result depends on the stored files and the ledger only, to the bit: a restarted aggregator
// and replay reach the same digests.
#pragma once

#include "aggregator/store/model_store.h"
#include "runtime/profile/job.h"

// Updates of a round that stood out: scaled down, capped or left out.
struct cn_merge_cuts {
    uint32_t round, count;
    double norm;              // the largest
    char group[CN_NAME_SIZE]; // whose it is
    char text[240];           // a sentence about it, with its numbers
};

struct cn_merge_config {
    struct cn_store *store;
    struct cn_ledger *ledger;
    const struct cn_layout *layout;
    const struct cn_job *job;
    const uint8_t *graph;       // digest
    struct cn_merge_cuts *cuts; // filled in, and each is logged; NULL for neither
};

// next is version parent->number + 1. CN_ENOTFOUND when an update's file is no longer there,
// CN_EDIGEST when it is not the accepted one, CN_EDIVERGED when the result is not finite.
cn_err cn_merge_round(const struct cn_merge_config *config, const struct cn_model *parent,
                      struct cn_model *next);
