// halving.h - synchronous successive halving: which trials go on after each rung.
//
// All trials train for `first` rounds. The best 1/factor of them go on to factor times as many
// rounds, and so on until one is left (Jamieson and Talwalkar, "Non-stochastic Best Arm
// Identification and Hyperparameter Optimization", AISTATS 2016). Losses, not times, decide, so a
// sweep has the same winner however often it was stopped. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cn_halving {
    uint32_t trials; // at least 1
    uint32_t first;  // rounds of the first rung
    uint32_t factor; // at least 2
};

// Returns the number of rungs, at least 1. In the last one a single trial is left, unless several
// tie.
uint32_t cn_halving_rungs(const struct cn_halving *plan);

// Returns the rounds that a trial has trained at the end of a rung, counted from 0; UINT32_MAX when
// these are too many to count.
uint32_t cn_halving_rounds(const struct cn_halving *plan, uint32_t rung);

// Takes the trials out of `in` that do not go on after a rung. losses has those of the trials that
// are in. A trial whose loss is not finite never goes on. Trials that tie with the last one to go
// on do so, too.
void cn_halving_select(const struct cn_halving *plan, uint32_t rung, const double *losses,
                       bool *in);

// Returns the trial with the lowest loss of those that are in, the first of several; UINT32_MAX
// when none has a finite loss.
uint32_t cn_halving_best(uint32_t trials, const double *losses, const bool *in);
