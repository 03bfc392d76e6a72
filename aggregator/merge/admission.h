// admission.h - checks that a frame is what its group declared, and limits its weight.
#pragma once

#include "aggregator/roster/roster.h"
#include "aggregator/store/spool.h"
#include "runtime/update/update.h"

// Checks the complete frame of declared.size bytes, and that its run, round, base and group are
// those of its upload. Sets weight to the number of samples that the sender claims. Returns
// CN_EFORMAT, or an error of cn_update_check, with one line in diag for each mistake.
cn_err cn_admission_check(const struct cn_layout *layout, const struct cn_spooled *upload,
                          const uint8_t *frame, struct cn_diag *diag, uint64_t *weight);

// Checks that the number of steps that an upload gives for its group is one that the job allows.
// Without server.normalize and train.correction nothing depends on the number, and any is taken.
// Returns CN_ERANGE.
cn_err cn_admission_check_steps(const struct cn_job *job, const struct cn_spooled *upload,
                                struct cn_diag *diag);

// Returns weight, limited by four bounds:
//
//   - the job's max_weight;
//   - the max_weight of the group's enrolment; group may be NULL: no bound;
//   - the samples that the group's enrolled boards can draw in a round, unless the job trusts
//     groups;
//   - 2^31 / quorum, so that the sum of a quorum's weights fits the fold.
uint64_t cn_admission_cap(const struct cn_job *job, const struct cn_roster_group *group,
                          uint64_t weight);
