// run_counts.h - what a run counted since it was opened, for monitors. Histograms are of seconds.
#pragma once

#include "runtime/base/histogram.h"

// Why an update was rejected.
enum cn_run_refusal {
    CN_REFUSAL_FRAME,       // the frame is not what was declared, or breaks a rule
    CN_REFUSAL_OTHER,       // another update of the group counts for the round
    CN_REFUSAL_RUN,         // it belongs to another run
    CN_REFUSAL_NOT_OPEN,    // the round is not open yet
    CN_REFUSAL_NOT_INVITED, // the group is not invited
    CN_REFUSAL_BASE,        // it is relative to another version
    CN_REFUSAL_COUNT,
};

// Returns what a board is told about a refusal; NULL for CN_REFUSAL_FRAME, of which each case has a
// sentence of its own.
const char *cn_run_refusal_text(enum cn_run_refusal why);

struct cn_run_counts {
    uint64_t accepted, rejected, late, repeated; // verdicts about updates
    uint64_t refused[CN_REFUSAL_COUNT];          // the rejected ones, by reason
    uint64_t stale, behind;    // accepted updates from an older version; sum of their staleness
    uint64_t cut;              // updates that merges cut (cn_merge_cuts)
    uint64_t capped;           // updates that cn_admission_cap gave fewer samples than they said
    uint64_t merged, extended; // rounds
    struct cn_histogram round; // from the opening of a round to its version
    struct cn_histogram merge; // making a version and storing it
    struct cn_histogram evaluation; // measuring a version on the central set
    struct cn_histogram commit;     // making an accepted update durable
};
