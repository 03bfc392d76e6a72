// normalize.h - FedNova: how far a group moves the model does not depend on its number of steps.
//
// The rule is that of Wang et al. 2020, "Tackling the Objective Inconsistency Problem". Let A be
// the distance that K steps go along a constant gradient of 1, in units of the learning rate:
//
//   step of the version = (sum of p * A) * (sum of p * update / A)      p: shares of the weights
//
// so a group with twice the steps moves the version as far as the others do, not twice as far. A
// follows from K and the job alone, by this recurrence in double, K times from A = r = 0:
//
//   g = 1 - (learning_rate * proximal) * A;  r = momentum * r + g
//   A = A + r, or with Nesterov's momentum A + (g + momentum * r)
//
// An A below 1 counts as 1. What a group says of its steps cannot be checked, so in a round that
// has caps (caps.h) two more limits hold. With d = N' * (L / A) the length of the direction of an
// update whose norm is N' after the caps, and D the median of the d that are not 0:
//
// - An update with d > 5/4 * D counts by 5/4 * D / d of its n, if at least three d are not 0. So a
//   group that says few steps moves a version no further than the others do.
// - In (sum of p * A) an A counts as at most twice the median of all A. So a group that says many
//   steps does not make the version's step much longer.
//
// Medians are those of caps.h and include the updates that are left out. The sum stays in whole
// numbers: with w the capped weight of an update and L the least A of the updates that count, a
// trained value counts n = w * 256 * L / A times, rounded down and at least 1, of (sum of w) * 256.
// The mean is then multiplied once by the float32 of (sum of w * A) / (sum of w) / L. Statistics
// have no direction: they take the plain mean. Each line is computed in double, from left to right,
// over the groups in the order of their names. Pure functions. Threading: none.
#pragma once

#include "aggregator/merge/caps.h"
#include "runtime/engine/layout.h"
#include "runtime/profile/job.h"

#define CN_NORMALIZE_UNIT 256 // parts of a sample that n counts

// Returns A for a number of steps.
double cn_normalize_distance(const struct cn_job *job, uint64_t steps);

// Returns whether the updates of a round are normalized: the job says so, and each says its steps.
bool cn_normalize_holds(const struct cn_job *job, const struct cn_caps_entry *entries,
                        size_t count);

// Limits the weights so that their sum in parts of samples fits the fold. Sets trained of each
// entry that is not left out to n, and *factor to what the mean is multiplied by. norm_max is the
// limit of the norms in units of 2^-27, 0: none. scratch has room for count numbers; NULL: the
// round has no caps.
void cn_normalize_find(const struct cn_job *job, struct cn_caps_entry *entries, size_t count,
                       uint64_t norm_max, double *scratch, float *factor);

// Multiplies the trained values of a mean.
void cn_normalize_scale(const struct cn_layout *layout, float factor, float *mean);
