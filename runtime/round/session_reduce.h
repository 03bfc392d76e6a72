// session_reduce.h - a step's gradients and votes over the group. Private to
// runtime/round/session*.c.
//
// Gradients are reduced in buckets, in the order in which the backward pass finishes them: a thread
// of the group's queue reduces one while this one computes the next. All members cut the same
// buckets; rank 0 says how large they are.
#pragma once

#include "runtime/group/bucket_tuner.h"
#include "runtime/group/queue.h"
#include "runtime/round/session.h"

// What one step took, in microseconds of the platform's clock.
struct cn_step_times {
    uint64_t begun, computed, reduced, voted, applied;
};

struct cn_reducer {
    struct cn_collective *collective;
    struct cn_queue *queue;
    struct cn_trainer *trainer;
    uint32_t rank, size;
    const struct cn_set *set; // whose gradients they are; NULL: the whole group
    bool measured;            // rank 0 chooses the buckets from what calls take
    size_t bucket;            // bytes
    struct cn_bucket_tuner tuner;

    // Of this step.
    uint32_t posted; // buckets
    struct cn_work works[CN_TRAINER_BUCKETS];
    cn_err err; // of posting
};

// Takes the buckets of a step as the trainer tells of them.
void cn_reducer_begin(struct cn_reducer *reducer, struct cn_trainer_sink *sink);

// Hands over what the trainer did not tell of, and returns when all gradients are reduced.
cn_err cn_reducer_finish(struct cn_reducer *reducer);

// Ends the collective and returns when nothing uses the gradients any more.
void cn_reducer_cancel(struct cn_reducer *reducer);

// After a step: what its calls took.
void cn_reducer_measure(struct cn_reducer *reducer, const struct cn_step_times *times);

// Rank 0's choice for the steps that follow.
size_t cn_reducer_choose(struct cn_reducer *reducer, const struct cn_step_times *times);

// All members cut buckets anew.
cn_err cn_reducer_cut(struct cn_reducer *reducer, size_t bucket);
