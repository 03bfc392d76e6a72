// balance.h - micro-batches of a step, by what each member was measured to take for one.
//
// All members compute it from the same numbers, which travel with each step's vote, in additions,
// multiplications and divisions of float64 alone: so all come to the same. The total stays what it
// is. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/port/collective.h"

struct cn_balance {
    uint32_t steps;          // measured
    double ms[CN_GROUP_MAX]; // for a micro-batch, by place: moving averages
};

// After a step in which each of count places computed its micro-batches for so long.
void cn_balance_add(struct cn_balance *balance, const uint32_t *micro, const double *computed_ms,
                    uint32_t count);

// Divides the micro-batches anew where the slowest would be done at least 10 % sooner: true then. A
// place may get none, and is tried again after a while.
bool cn_balance_divide(const struct cn_balance *balance, uint32_t count, uint32_t *micro);
