// schedule.h - the learning rate and Adam's corrections, step by step.
//
// All boards of a group compute them on their own and must get the same bits: there are only
// additions, multiplications, divisions and square roots of float64 here, and no libm.
#pragma once

#include <stdint.h>

#include "runtime/profile/job.h"

// The rate of a step of a run, numbered from 0. steps is the length of the run, where the cosine
// ends. With warm-up the rate of step s is (s + 1) / warm_up of what it would be.
float cn_schedule_rate(const struct cn_rules *rules, double rate, uint64_t steps, uint64_t step);

// Powers of Adam's betas: one multiplication for each step.
struct cn_schedule_powers {
    uint64_t steps;
    double beta1, beta2; // to the power of steps
};

// Brings the powers to a count of steps.
void cn_schedule_powers_set(const struct cn_rules *rules, uint64_t steps,
                            struct cn_schedule_powers *powers);

// cn_hyper's corrections for a step: 1 - beta1^t and the root of 1 - beta2^t.
void cn_schedule_corrections(const struct cn_schedule_powers *powers, float *correction1,
                             float *correction2);

// The value of a rule, with its default. In float32, as the device has it.
float cn_schedule_beta1(const struct cn_rules *rules);
float cn_schedule_beta2(const struct cn_rules *rules);
float cn_schedule_epsilon(const struct cn_rules *rules);
