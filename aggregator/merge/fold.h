// fold.h - adds updates into one mean, in whole numbers, so that their order does not matter.
//
// A value counts as fix(v) = v * 2^27 rounded to the nearest integer, ties to even, and the sum of
// weight * fix(v) is kept in an int64 for each coordinate: |v| <= 16 and a sum of weights of at
// most 2^31 cannot overflow it. Memory is 8 bytes a coordinate, however many updates there are.
//
// An update with a larger L2 norm than max_norm is scaled down in the same whole numbers. With
// S = the sum of fix(v)^2, N = the square root of S rounded up, M = the lesser of max_norm * 2^27
// rounded down and norm_max,
// and F = M * 2^32 / N rounded down, each fix(v) is replaced by fix(v) * F / 2^32, rounded towards
// zero, if N > M. A running variance of the version before, v, can lose no more than it has: a
// change of it below -(v * 2^27 rounded down) is that. Threading: none.
#pragma once

#include "runtime/update/update.h"

struct cn_fold;

struct cn_fold_caps {
    uint64_t max_weight; // samples one update may count for; 0 for no limit
    double max_norm;     // 0 for no limit
    uint64_t norm_max;   // another limit of the norm, in units of 2^-27; 0 for none
    const float *base;   // the version before, borrowed until close; NULL: variances have no limit
};

// The norm of a checked frame in units of 2^-27, rounded up: N above.
cn_err cn_fold_norm(const struct cn_layout *layout, const uint8_t *frame, size_t size,
                    uint64_t *norm);

// layout is borrowed until close.
cn_err cn_fold_open(const struct cn_layout *layout, const struct cn_fold_caps *caps,
                    struct cn_fold **fold);
void cn_fold_close(struct cn_fold *fold);

// Adds a frame that counts for weight samples, or for max_weight if that is less. The frame is
// checked: on any error (those of cn_update_check; CN_ERANGE when the weight is 0 or the sum
// of weights would pass 2^31) nothing has changed.
cn_err cn_fold_add(struct cn_fold *fold, const uint8_t *frame, size_t size, uint64_t weight,
                   struct cn_diag *diag);

// L2 norm of the update that was added last, if it was scaled down; else 0.
double cn_fold_cut(const struct cn_fold *fold);

// The sum of the weights as counted.
uint64_t cn_fold_weight(const struct cn_fold *fold);

// mean[i] = the weighted mean, divided exactly and rounded once to the nearest even float. The fold
// stays as it is. CN_ENOTFOUND when nothing was added.
cn_err cn_fold_finish(const struct cn_fold *fold, float *mean);
