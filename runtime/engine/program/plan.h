// plan.h - places blocks of memory that are not all alive at the same time.
#pragma once

#include <stddef.h>

#include "runtime/base/error.h"

#define CN_PLAN_ALIGNMENT 16 // words
#define CN_PLAN_BEST 8192    // blocks up to which the best places are looked for

struct cn_plan_block {
    size_t words;
    size_t first, last; // steps from the first that writes it to the last that reads it, inclusive
    size_t offset;      // result, words
};

// Gives every block an offset such that blocks alive at the same step do not overlap; *total is the
// memory they need together. Largest first, each at the lowest place that is free for its life;
// with more than CN_PLAN_BEST blocks, where that would take long, in the order of their lives,
// reusing the places of blocks of about their size. CN_ENOMEM, also when the sizes overflow.
cn_err cn_plan_place(struct cn_plan_block *blocks, size_t count, size_t *total);
