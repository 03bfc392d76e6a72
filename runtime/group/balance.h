// balance.h - divides the micro-batches of a step by the measured speed of each member.
//
// All members compute the division from the same numbers, which travel with each step's vote. They
// use only additions, multiplications and divisions of float64, so all get the same result. The
// total number of micro-batches stays the same. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/port/collective.h"

struct cn_balance {
    uint32_t steps;          // number of measured steps
    double ms[CN_GROUP_MAX]; // time of a micro-batch at each place, as a moving average
};

// Adds the measurement of a step: place p of count places computed micro[p] micro-batches in
// computed_ms[p].
void cn_balance_add(struct cn_balance *balance, const uint32_t *micro, const double *computed_ms,
                    uint32_t count);

// Divides the micro-batches again and returns true if the slowest place would then finish at least
// 10 % sooner. A place may get none; it is tried again after a while.
bool cn_balance_divide(const struct cn_balance *balance, uint32_t count, uint32_t *micro);
