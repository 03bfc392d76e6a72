// session_reduce.h - reduces a step's gradients and votes over the group. Private to
// runtime/round/session.
//
// Gradients are reduced in buckets, in the order in which the backward pass finishes them. A thread
// of the group's queue reduces one bucket while this thread computes the next. The first call of a
// step takes one bucket, each further call a window of several. All members use the same buckets;
// rank 0 chooses their size and the window.
#pragma once

#include "runtime/engine/program/bucket_plan.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/group/bucket_tuner.h"
#include "runtime/group/queue.h"
#include "runtime/port/collective.h"

struct cn_step_plan;

// The times at which the parts of a step ended, in microseconds of the platform's clock.
struct cn_step_times {
    uint64_t begun, computed, reduced, voted, applied;
};

// Indices of a member's times in a step, on rank 0's clock. They travel as int64.
enum {
    CN_TRACE_JOINED, // time at which the epoch began
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
    uint32_t members[CN_GROUP_MAX]; // by rank: index in the profile's list
    const struct cn_set *set;       // members that add up these gradients; NULL: the whole group
    bool measured;                  // rank 0 chooses the buckets by the measured calls
    struct cn_bucket_choice choice;
    enum cn_number wire;
    // Plan of a step with shards; NULL: all members reduce everything.
    const struct cn_step_plan *shares;
    struct cn_bucket_tuner tuner;

    // State of the current step.
    uint32_t told;  // number of buckets that the trainer has finished
    uint32_t first; // first finished bucket that is not posted; its gradients begin at data
    float *data;
    uint32_t posted;       // number of calls posted for this board's gradients
    struct cn_work newest; // newest call; its number is 0 before the first
    uint64_t waited_us;    // time waited within the passes
    struct reducer_call {
        struct cn_work work;
        size_t count; // number of values
    } calls[CN_TRAINER_BUCKETS];
    cn_err err; // first error of posting

    // State for the timeline.
    uint64_t joined_us;
    bool compared;    // the clocks were compared
    int64_t ahead_us; // rank 0's clock minus this board's
    struct cn_trace_row rows[CN_GROUP_MAX];
};

// Begins a step. The trainer reports finished buckets to sink.
void cn_reducer_begin(struct cn_reducer *reducer, struct cn_trainer_sink *sink);

// Posts the buckets that the trainer has not reported, and waits until all gradients are reduced.
cn_err cn_reducer_finish(struct cn_reducer *reducer);

// Posts any other call of a step.
cn_err cn_reducer_post(struct cn_reducer *reducer, const struct cn_collective_call *call,
                       struct cn_work *work);

// Waits until a posted call has ended. Returns its result.
cn_err cn_reducer_wait(struct cn_reducer *reducer, struct cn_work work);

// Ends the collective, and returns when nothing uses the gradients any more.
void cn_reducer_cancel(struct cn_reducer *reducer);

// Adds the durations of a finished step's calls to the measurements.
void cn_reducer_measure(struct cn_reducer *reducer, const struct cn_step_times *times);

// Returns rank 0's choice for the next steps, after a step that computed `micro` micro-batches.
struct cn_bucket_choice cn_reducer_choose(struct cn_reducer *reducer,
                                          const struct cn_step_times *times, uint32_t micro);

// Uses rank 0's choice from now on.
cn_err cn_reducer_use(struct cn_reducer *reducer, const struct cn_bucket_choice *choice);

// Returns a call that adds up gradients.
struct cn_collective_call cn_reducer_call(const struct cn_reducer *reducer, float *data,
                                          size_t count, uint32_t fingerprint);
