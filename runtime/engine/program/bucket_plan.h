// bucket_plan.h - plans a program that holds gradients, and in ZeRO stage 3 weights, one bucket at
// a time.
//
// The list of calls is cut into segments. A segment ends where a bucket's gradient is complete, and
// begins where a bucket of weights is first needed. A gradient has a slot from its first call to
// the end of the segment after the one that completes it; in that last segment it is reduced.
// Weights are fetched in the segment before their first use and stay until their last. A bucket of
// weights that is needed again soon stays in memory. Otherwise it is fetched again (in the backward
// pass, or for a tensor that is used twice). All slots are planned, so a step allocates nothing.
#pragma once

#include "runtime/engine/program/gradient_order.h"
#include "runtime/engine/program/program.h"

enum cn_stage {             // ZeRO stage: of what a member holds only its share
    CN_STAGE_OPTIMIZER = 1, // optimizer state
    CN_STAGE_GRADIENTS,     // optimizer state and gradients
    CN_STAGE_WEIGHTS,       // optimizer state, gradients and weights
};

#define CN_BUCKET_PLAN_MAX 64

struct cn_planned_bucket {
    size_t first, count; // words in gradient order
    size_t slot;         // place of its gradient: words from the start of CN_ARENA_GRADIENTS
    size_t segment;      // segment that completes its gradient
};

struct cn_fetch { // of one bucket of weights
    uint32_t bucket;
    size_t slot;        // place of the weights: words from the start of CN_ARENA_WEIGHTS
    size_t begin;       // the fetch may begin before this segment runs
    size_t first, last; // first and last segment that reads the weights
};

struct cn_bucket_plan {
    struct cn_planned_bucket buckets[CN_BUCKET_PLAN_MAX];
    uint32_t count;
    size_t *ends;             // owned; by segment: calls up to its end
    size_t segments;          // number of segments
    size_t forward;           // number of segments up to the loss
    struct cn_fetch *fetches; // owned; in the order of their segments; none below CN_STAGE_WEIGHTS
    size_t fetch_count;
    size_t *resident;      // owned; by tensor of the layout: place of weights without a gradient,
                           // which stay; SIZE_MAX for others; NULL below CN_STAGE_WEIGHTS
    size_t resident_words; // words of those weights, at the beginning of CN_ARENA_WEIGHTS
};

// Returns the least words of a bucket of a model that is trained in shards. It follows from the
// model alone, so all members agree.
size_t cn_bucket_plan_words(const struct cn_gradient_order *order);

// Cuts the buckets, plans the slots, and moves the operands and arena sizes of program to them.
// With `apart` other micro-batches run between the forward and the backward pass of one: then the
// backward pass fetches all of its weights, and no forward call may write a gradient. CN_ENOMEM.
cn_err cn_bucket_plan_make(const struct cn_gradient_order *order, const struct cn_layout *layout,
                           enum cn_stage stage, bool apart, struct cn_program *program,
                           struct cn_bucket_plan *plan);
void cn_bucket_plan_deinit(struct cn_bucket_plan *plan);
