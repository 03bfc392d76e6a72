// measured.h - what groups say they measured: how much of it counts, and which of them stands out.
//
// A measurement is its sender's word. Decisions take the median of the groups (score.h); this names
// the groups that are far from it, and bounds the samples that one may claim. README.md has the
// rule. Threading: none.
#pragma once

#include "aggregator/store/roster.h"

// With fewer groups there is no majority to compare with.
#define CN_MEASURED_LEAST 3

struct cn_measured_entry {
    double loss, accuracy; // means over the group's samples
    bool stands_out;       // one of the two is far from the median
};

struct cn_measured_median {
    double loss, accuracy; // of an even number the worse one
};

// Sets stands_out of all entries, at least one; their order does not matter. scratch has count
// numbers.
void cn_measured_find(struct cn_measured_entry *entries, size_t count, double *scratch,
                      struct cn_measured_median *median);

// Calls visit with a line about each group that stands out in what was measured in a round. An
// error is the ledger's or CN_ENOMEM.
#define CN_MEASURED_TEXT 200
typedef void cn_measured_visit(void *context, const char *group, const char *text);
cn_err cn_measured_outliers(struct cn_ledger *ledger, uint32_t round, cn_measured_visit *visit,
                            void *context);

// Limits the samples of a measurement that is about to be accepted: to what the group's boards said
// the first time in the run, each board the same, and to the max_weight of its enrolment. The sums
// are scaled with them, so that the means stay. group may be NULL: no enrolment.
cn_err cn_measured_bound(struct cn_ledger *ledger, const struct cn_roster_group *group,
                         struct cn_ledger_contribution *contribution);
