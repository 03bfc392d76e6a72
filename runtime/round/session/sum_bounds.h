// sum_bounds.h - which sums over the members of a group are believed.
//
// A sum does not show what each member added, so one that lies or is broken can make it any number,
// also NaN. What cannot be is replaced before it reaches the state, the optimizer or the
// aggregator, by the same on all members. Threading: none; pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define CN_SUM_COUNT_MOST 0x1p40f // samples or rows; as many as the aggregator believes
#define CN_SUM_LOSS_MOST 1e30     // as transport/PROTOCOL.md, "amount"

// Returns whether the sums over held-out samples are possible. A loss that is not finite is: the
// model may have diverged.
bool cn_sum_is_measured(float loss, float correct, float rows);

// Returns value if it is in [least, most], else otherwise. NaN is in no range.
double cn_sum_within(double value, double least, double most, double otherwise);

// The sums of a step's votes.
struct cn_step_sums {
    float samples, weight, loss;
};

// Replaces what cannot be: samples by most, the weight by the samples, the loss by 0. Returns false
// if it replaced anything.
bool cn_sum_bound_step(struct cn_step_sums *sums, float most);
