// bucket_plan.h - a program whose gradients, and weights, are in memory a bucket at a time (ZeRO
// stages 2 and 3).
//
// The list of calls is cut into segments: one ends where a bucket's gradient is complete, and one
// begins where a bucket of weights is first needed. A gradient has a slot from its first call to
// the end of the segment after the one that completes it, in which it is reduced. Weights are
// fetched in the segment before their first use and stay until their last; what is needed again
// soon stays, what is not is fetched anew (in the backward pass, or for a tensor that is used
// twice). All slots are planned, so a step allocates nothing.
#pragma once

#include "runtime/engine/program/gradient_order.h"
#include "runtime/engine/program/program.h"

enum cn_stage { // of ZeRO: what a member holds its share of only
    CN_STAGE_OPTIMIZER = 1,
    CN_STAGE_GRADIENTS, // that too
    CN_STAGE_WEIGHTS,   // and those
};

#define CN_BUCKET_PLAN_MAX 64

struct cn_planned_bucket {
    size_t first, count; // words of the gradient order
    size_t slot;         // of its gradient: words from the start of CN_ARENA_GRADIENTS
    size_t segment;      // that completes its gradient
};

struct cn_fetch {
    uint32_t bucket;
    size_t slot;        // words from the start of CN_ARENA_WEIGHTS
    size_t begin;       // segment before which it may begin
    size_t first, last; // segments that need it
};

struct cn_bucket_plan {
    struct cn_planned_bucket buckets[CN_BUCKET_PLAN_MAX];
    uint32_t count;
    size_t *ends; // owned; of each segment, calls
    size_t segments;
    size_t forward;           // segments up to the loss
    struct cn_fetch *fetches; // owned; in the order of their segments; none below CN_STAGE_WEIGHTS
    size_t fetch_count;
    size_t *resident;      // owned; by tensor of the layout: where weights without a gradient stay,
                           // SIZE_MAX for the others; NULL below CN_STAGE_WEIGHTS
    size_t resident_words; // at the beginning of CN_ARENA_WEIGHTS
};

// Words of a bucket of a model that is trained in shards: the same on all its members.
size_t cn_bucket_plan_words(const struct cn_gradient_order *order);

// Cuts the buckets, plans the slots, and moves the operands and sizes of program to them.
cn_err cn_bucket_plan_make(const struct cn_gradient_order *order, const struct cn_layout *layout,
                           enum cn_stage stage, struct cn_program *program,
                           struct cn_bucket_plan *plan);
void cn_bucket_plan_deinit(struct cn_bucket_plan *plan);
