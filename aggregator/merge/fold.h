// fold.h - adds updates into one mean, in whole numbers, so that their order does not matter.
//
// fix(v) = v * 2^27, rounded to the nearest integer, ties to even. For each coordinate the fold
// keeps the sum of weight * fix(v) in an int64. With |v| <= 16 and a sum of weights of at most 2^31
// it cannot overflow. Memory is 8 bytes for each coordinate, whatever the number of updates.
//
// An update whose L2 norm is above a limit is scaled down in the same whole numbers. Its trained
// values and its running statistics have a norm and a limit each:
//
//   S = the sum of fix(v)^2 of the trained values, or of the statistics
//   N = the square root of S, rounded up
//   M = of the trained values the lesser of max_norm * 2^27, rounded down, and norm_max;
//       of the statistics statistics_max
//   F = M * 2^32 / N, rounded down
//
// If N > M, each fix(v) is replaced with fix(v) * F / 2^32, rounded towards zero. An update cannot
// take more from a running variance than the variance has: with v its value in the version before,
// the change is at least -(v * 2^27, rounded down). Threading: none.
#pragma once

#include "runtime/update/update.h"

struct cn_fold;

struct cn_fold_caps {
    uint64_t max_weight; // samples that one update may count for; 0: no limit
    double max_norm;     // largest L2 norm of an update's trained values; 0: no limit
    uint64_t norm_max;   // another limit of that norm, in units of 2^-27; 0: none
    // Limit of the norm of an update's statistics, in units of 2^-27; 0: none.
    uint64_t statistics_max;
    bool together; // as an older program: one norm of all values, which has the first two limits
    // The version before, borrowed until close. Limits the changes of variances; NULL: no such
    // limit.
    const float *base;
};

// The norms of an update in units of 2^-27, rounded up: N above.
struct cn_fold_norms {
    uint64_t trained, statistics, together;
};

// Computes the norms of a frame that was checked.
cn_err cn_fold_norms(const struct cn_layout *layout, const uint8_t *frame, size_t size,
                     struct cn_fold_norms *norms);

// Opens an empty fold. layout is borrowed until close. Returns CN_ERANGE when the sums of a layout
// cannot be addressed, CN_ENOMEM.
cn_err cn_fold_open(const struct cn_layout *layout, const struct cn_fold_caps *caps,
                    struct cn_fold **fold);
void cn_fold_close(struct cn_fold *fold);

// Checks a frame and adds it with weight samples, or with max_weight if that is less. Errors are
// those of cn_update_check. CN_EFORMAT is also returned for a snapshot, and CN_ERANGE when the
// weight is 0 or the sum of weights would pass 2^31. An error leaves the fold unchanged.
cn_err cn_fold_add(struct cn_fold *fold, const uint8_t *frame, size_t size, uint64_t weight,
                   struct cn_diag *diag);

// How much an update counts.
struct cn_fold_share {
    uint64_t weight;     // samples
    uint64_t trained;    // trained values count this many times in place of weight; 1 to weight
    bool statistics_out; // the statistics count as unchanged
};

// As cn_fold_add, with a share.
cn_err cn_fold_add_share(struct cn_fold *fold, const uint8_t *frame, size_t size,
                         const struct cn_fold_share *share, struct cn_diag *diag);

// Returns the L2 norm of the trained values of the update that was added last if they were scaled
// down, otherwise 0.
double cn_fold_cut(const struct cn_fold *fold);

// Returns the sum of the weights as they were counted.
uint64_t cn_fold_weight(const struct cn_fold *fold);

// Sets mean to the weighted mean: each value is divided exactly and rounded once to the nearest
// float, ties to even. The fold does not change. Returns CN_ENOTFOUND when nothing was added.
cn_err cn_fold_finish(const struct cn_fold *fold, float *mean);

// As cn_fold_finish, but divides by divisor. Returns CN_ERANGE when divisor is less than the sum of
// the weights or more than 2^31.
cn_err cn_fold_finish_by(const struct cn_fold *fold, uint64_t divisor, float *mean);
