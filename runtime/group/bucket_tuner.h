// bucket_tuner.h - chooses how many bytes of gradients to reduce at a time, by measured call times.
//
// A call costs a latency and a time for each byte. Small buckets pay the latency often. A large
// bucket begins late, once all of its gradients are there, and the step waits for the part that is
// left when the backward pass ends. So the first call of a step takes one bucket, to begin early.
// Each further call takes a window of buckets, to pay the latency less often. The tuner simulates a
// step with each of a few sizes and windows and takes the one with the shortest wait.
//
// Only the smallest times of a span of steps count, since others include waiting for a slower
// member. A choice stays until the link was faster or slower by a quarter for CN_TUNER_SPANS spans
// in a row; then the link is measured again. Only rank 0's tuner decides; rank 0 tells the others.
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CN_TUNER_STEPS 8                   // steps of a span
#define CN_TUNER_SPANS 2                   // spans in a row that show a change of the link
#define CN_BUCKET_LEAST ((size_t)64 << 10) // bytes of the smallest bucket
#define CN_BUCKET_FIRST ((size_t)1 << 20)  // bytes of a bucket before anything was measured
#define CN_WINDOW_MOST 8                   // most buckets in a call

// The cost of a call.
struct cn_bucket_costs {
    double latency_us, byte_us; // 0: not measured
};

struct cn_bucket_choice {
    size_t bucket;   // bytes
    uint32_t window; // buckets of each call except the first
};

struct cn_bucket_tuner {
    uint32_t steps;                 // steps of this span so far
    double latency_us;              // smallest latency in this span; 0: not measured
    double call_us, call_bytes;     // the call of this span with the least time per byte
    struct cn_bucket_costs settled; // costs that the present choice was made from; 0: no choice
    struct cn_bucket_costs now;     // costs in the last whole span
    uint32_t away;                  // spans in a row in which now differed from settled
    bool shifted;                   // the link has to be measured again
};

enum cn_tuner_event {
    CN_TUNER_NOTHING,
    CN_TUNER_CHOSE,   // choice, changed or not, holds from the next step on; see settled
    CN_TUNER_SHIFTED, // the link has changed: see settled and now; a choice follows
};

// Adds the time of a call. A call of at most 4 KiB measures the latency.
void cn_bucket_tuner_add(struct cn_bucket_tuner *tuner, size_t bytes, double us);

// Ends a step with total bytes of gradients. compute_us is the time of a micro-batch, forward and
// backward. choice is the one that the step used; on return it is the one for the next step.
enum cn_tuner_event cn_bucket_tuner_step(struct cn_bucket_tuner *tuner, size_t total,
                                         double compute_us, struct cn_bucket_choice *choice);

// Returns the microseconds that a step waits for its gradients after a backward pass that makes one
// byte of gradients in made_us.
double cn_bucket_tuner_exposed(const struct cn_bucket_costs *costs, size_t total, double made_us,
                               const struct cn_bucket_choice *choice);
