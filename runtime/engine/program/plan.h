// plan.h - places blocks of memory that are not all alive at the same time.
#pragma once

#include <stddef.h>

#include "runtime/port/compute.h"

#define CN_PLAN_ALIGNMENT CN_ARENA_ALIGNMENT
#define CN_PLAN_BEST 8192 // most blocks for which the best places are searched

struct cn_plan_block {
    size_t words;
    size_t first, last; // life: first step that writes it to last step that reads it, inclusive
    size_t offset;      // result: words from the start
};

// Gives every block an offset such that blocks alive at the same step do not overlap. *total is the
// memory that they need together, in words. The largest block is placed first, each at the lowest
// place that is free for its life. With more than CN_PLAN_BEST blocks that would take too long:
// then they are placed in the order of their lives, in places of ended blocks of about their size.
// Rounds the words of each block up to CN_PLAN_ALIGNMENT. CN_ENOMEM, also when the sizes overflow.
cn_err cn_plan_place(struct cn_plan_block *blocks, size_t count, size_t *total);
