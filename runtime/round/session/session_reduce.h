// session_reduce.h - a step's gradients and votes over the group. Private to
// runtime/round/session/session*.c.
//
// Gradients are reduced in buckets, in the order in which the backward pass finishes them: a thread
// of the group's queue reduces one while this one computes the next. The first call of a step takes
// one bucket, each further one a window of them. All members cut the same buckets; rank 0 says how
// large they are, and the window.
#pragma once

#include "runtime/group/bucket_tuner.h"
#include "runtime/group/queue.h"
#include "runtime/round/session/session.h"

// What one step took, in microseconds of the platform's clock.
struct cn_step_times {
    uint64_t begun, computed, reduced, voted, applied;
};

// A member's step for the timeline, on rank 0's clock; only whole int64 numbers, as they travel.
enum {
    CN_TRACE_JOINED, // the epoch
    CN_TRACE_BEGUN,
    CN_TRACE_COMPUTED,
    CN_TRACE_REDUCED,
    CN_TRACE_VOTED,
    CN_TRACE_APPLIED,
    CN_TRACE_TIMES
};

struct cn_trace_row {
    int64_t at[CN_TRACE_TIMES];
    int64_t calls;
    int64_t call[CN_TRAINER_BUCKETS][3]; // begin, end, bytes
};

struct cn_reducer {
    struct cn_collective *collective;
    struct cn_queue *queue;
    struct cn_trainer *trainer;
    uint32_t rank, size;
    uint32_t members[CN_GROUP_MAX]; // by rank: number in the profile's list
    const struct cn_set *set;       // whose gradients they are; NULL: the whole group
    bool measured;                  // rank 0 chooses the buckets from what calls take
    struct cn_bucket_choice choice;
    enum cn_number wire;
    const struct cn_step_plan *shares; // of a step with shards; NULL: all reduce all
    struct cn_bucket_tuner tuner;

    // Of this step.
    uint32_t told;  // buckets that were taken
    uint32_t first; // the first of them that is not posted; its gradients begin at data
    float *data;
    uint32_t posted;       // calls that bring gradients of this board's
    struct cn_work newest; // number 0: none
    uint64_t waited_us;    // within the passes
    struct reducer_call {
        struct cn_work work;
        size_t count; // values
    } calls[CN_TRAINER_BUCKETS];
    cn_err err; // of posting

    // For the timeline.
    uint64_t joined_us;
    bool compared;    // the clocks
    int64_t ahead_us; // rank 0's clock
    struct cn_trace_row rows[CN_GROUP_MAX];
};

// Takes the buckets of a step as the trainer tells of them.
void cn_reducer_begin(struct cn_reducer *reducer, struct cn_trainer_sink *sink);

// Hands over what the trainer did not tell of, and returns when all gradients are reduced.
cn_err cn_reducer_finish(struct cn_reducer *reducer);

// Hands over any other call of a step.
cn_err cn_reducer_post(struct cn_reducer *reducer, const struct cn_collective_call *call,
                       struct cn_work *work);

// Returns when a call that was handed over has ended, and how.
cn_err cn_reducer_wait(struct cn_reducer *reducer, struct cn_work work);

// Ends the collective and returns when nothing uses the gradients any more.
void cn_reducer_cancel(struct cn_reducer *reducer);

// After a step: what its calls took.
void cn_reducer_measure(struct cn_reducer *reducer, const struct cn_step_times *times);

// Rank 0's choice for the steps that follow one that computed so many micro-batches.
struct cn_bucket_choice cn_reducer_choose(struct cn_reducer *reducer,
                                          const struct cn_step_times *times, uint32_t micro);

// What rank 0 chose holds from here on.
cn_err cn_reducer_use(struct cn_reducer *reducer, const struct cn_bucket_choice *choice);

// Collects what all members did in a step, and writes it where a timeline is wanted.
cn_err cn_session_trace(struct cn_session *session, const struct cn_step_times *times);

// At the end of an epoch.
void cn_session_trace_epoch(const struct cn_session *session);

// A call that adds up gradients.
struct cn_collective_call cn_reducer_call(const struct cn_reducer *reducer, float *data,
                                          size_t count, uint32_t fingerprint);
