// measured.h - limits what the groups' measurements count for, and names groups that stand out.
//
// The aggregator cannot verify a measurement. Decisions take the median of the groups (score.h).
// This unit names the groups that are far from the median, and limits the samples that a group may
// claim. README.md has the rule. Threading: none.
#pragma once

#include "aggregator/roster/roster.h"

// With fewer groups there is no majority to compare with, so none stands out.
#define CN_MEASURED_LEAST 3

struct cn_measured_entry {
    double loss, accuracy; // means over the group's samples
    bool stands_out;       // whether loss or accuracy is far from the median
};

struct cn_measured_median {
    double loss, accuracy; // of two middle values, the worse one
};

// Sets stands_out of all entries, of which there is at least one; their order does not matter.
// scratch has room for count numbers.
void cn_measured_find(struct cn_measured_entry *entries, size_t count, double *scratch,
                      struct cn_measured_median *median);

// Size of the line that cn_measured_visit receives about a group that stands out.
#define CN_MEASURED_TEXT 240
typedef void cn_measured_visit(void *context, const char *group, const char *text);
// Calls visit for each group that stands out in what was measured in a round. Errors are those of
// the ledger, and CN_ENOMEM.
cn_err cn_measured_outliers(struct cn_ledger *ledger, uint32_t round, cn_measured_visit *visit,
                            void *context);

// Limits the samples of a measurement that is about to be accepted. Each board counts for at most
// the samples per board in the group's first measurement of the run. The group counts for at most
// the max_weight of its enrolment. The sums are scaled with the samples, so the means stay. group
// may be NULL: no enrolment limit. contribution->boards is at least 1.
cn_err cn_measured_bound(struct cn_ledger *ledger, const struct cn_roster_group *group,
                         struct cn_ledger_contribution *contribution);
