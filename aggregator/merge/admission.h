// admission.h - checks that a frame is what its group declared, and limits its weight.
#pragma once

#include "aggregator/roster/roster.h"
#include "aggregator/store/spool.h"
#include "runtime/update/update.h"

// Checks the complete frame of declared.size bytes: that its run, round, base and group are those
// of its upload, that it has the tensors that travel in this job, that it is encoded as the job's
// update.up.mode says, and that it is no snapshot. Any board may send the mode skip, because its
// bytes of the day may be used up; with update.up.mode auto any mode is allowed. job is NULL for an
// update of an earlier round, which may have had another mode. Sets weight to the number of samples
// that the sender claims. Returns CN_EFORMAT, or an error of cn_update_check; diag says why.
cn_err cn_admission_check(const struct cn_job *job, const struct cn_layout *layout,
                          const struct cn_spooled *upload, const uint8_t *frame,
                          struct cn_diag *diag, uint64_t *weight);

// Checks that the number of steps that an upload gives for its group is one that the job allows.
// Without server.normalize and train.correction nothing depends on the number, and any is taken.
// Returns CN_ERANGE for a number that is not allowed; diag says which are.
cn_err cn_admission_check_steps(const struct cn_job *job, const struct cn_spooled *upload,
                                struct cn_diag *diag);

// Returns weight, limited by four bounds:
//
//   - the job's max_weight;
//   - the max_weight of the group's enrolment;
//   - the samples that the group's enrolled boards can draw in a round, unless the job trusts
//     groups;
//   - 2^31 / the number of updates that make a version, so that the sum of their weights fits the
//     fold.
//
// group may be NULL: it counts as one board without a max_weight.
uint64_t cn_admission_cap(const struct cn_job *job, const struct cn_roster_group *group,
                          uint64_t weight);
