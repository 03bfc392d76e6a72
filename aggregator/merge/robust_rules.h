// robust_rules.h - the rules that give each update a share of the result, from exact distances.
//
// distances has n * n squared distances. Doubles are used in the order of group names, one IEEE
// operation at a time, and only for shares: those are rounded down to whole numbers before they
// multiply values. Threading: none.
#pragma once

#include "aggregator/merge/robust_mixed.h"

// Multi-Krum (Blanchard et al. 2017): the score of a row is the sum of its n - tolerate - 2
// smallest distances to other rows. Sets chosen of the n - tolerate rows with the smallest scores;
// of equal ones the first by index counts. Returns CN_ENOMEM.
cn_err cn_robust_choose(const cn_robust_number *distances, size_t n, size_t tolerate, bool *chosen);

// RFA (Pillutla et al. 2022): three steps of Weiszfeld towards the geometric median. shares begin
// with weights / sum of weights, and become weights / max(nearest, distance to the weighted mean),
// over their sum.
//
//   z = sum over h of share_h * row_h
//   e_i = sum over h of share_h * d_ih
//   |row_i - z|^2 = e_i - (sum over h of share_h * e_h) / 2
//
// A negative square counts as 0.
void cn_robust_weigh(const cn_robust_number *distances, size_t n, const uint64_t *weights,
                     double nearest, double *shares);

// CenteredClip (Karimireddy et al. 2021, algorithm 2). Row n - 1 is the center c; the n - 1 others
// are the updates x. Three times, with r the lower median of the updates' distances to c:
//
//   kept_x = min(1, r / |x - c|)
//   c = c + the mean over x of kept_x * (x - c)
//
// shares say how the last center is made of all n rows. kept has the values of the last time.
// Returns CN_ENOMEM.
cn_err cn_robust_clip(const cn_robust_number *distances, size_t n, double *shares, double *kept);
