// schedule.h - the learning rate and Adam's corrections, step by step.
//
// Each board of a group computes them by itself, and all must get the same bits. So there are only
// additions, multiplications, divisions and square roots of float64 here, and no libm.
#pragma once

#include <stdint.h>

#include "runtime/profile/job.h"

// Returns the learning rate of a step, numbered from 0. rate is the base rate; steps is the length
// of the run, where the cosine ends. Warm-up multiplies the rate of step s by (s + 1) / warm_up
// while s < warm_up.
float cn_schedule_rate(const struct cn_rules *rules, double rate, uint64_t steps, uint64_t step);

// Powers of Adam's betas, kept so that the next step costs one multiplication.
struct cn_schedule_powers {
    uint64_t steps;      // the exponent
    double beta1, beta2; // the betas to the power of steps
};

// Brings the powers to the exponent steps. It starts again from 1 when steps is smaller than
// before.
void cn_schedule_powers_set(const struct cn_rules *rules, uint64_t steps,
                            struct cn_schedule_powers *powers);

// Returns the corrections of struct cn_hyper: 1 - beta1^t and sqrt(1 - beta2^t), t = powers->steps.
void cn_schedule_corrections(const struct cn_schedule_powers *powers, float *correction1,
                             float *correction2);

// Return the value of a rule, or its default when the rule is 0; in float32, as the device has it.
float cn_schedule_beta1(const struct cn_rules *rules);
float cn_schedule_beta2(const struct cn_rules *rules);
float cn_schedule_epsilon(const struct cn_rules *rules);
