// admission.h - whether a frame is what its group declared, and how much it may count for.
#pragma once

#include "aggregator/store/roster.h"
#include "aggregator/store/spool.h"
#include "runtime/update/update.h"

// Checks the frame of declared.size bytes as a whole, and that it is of the run, round, base and
// group of its upload. weight is the sender's claim. CN_EFORMAT, or an error of cn_update_check,
// with a line in diag for each mistake.
cn_err cn_admission_check(const struct cn_layout *layout, const struct cn_spooled *upload,
                          const uint8_t *frame, struct cn_diag *diag, uint64_t *weight);

// The weight limited by the job's max_weight, by the group's enrolment (NULL: none), by what its
// enrolled boards can draw in a round (unless the job trusts groups) and so that the weights of a
// quorum fit the fold.
uint64_t cn_admission_cap(const struct cn_job *job, const struct cn_roster_group *group,
                          uint64_t weight);
