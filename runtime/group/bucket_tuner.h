// bucket_tuner.h - how many bytes of gradients to reduce at a time, from what calls took.
//
// A call costs a latency and a time for each byte. Small buckets pay the latency often; a large one
// begins late, when all of its gradients are there, and what is left when the backward pass ends is
// waited for. So the first call of a step takes one bucket, to begin early, and each further one a
// window of buckets, to pay less often. The tuner plays a step through with each of a few sizes and
// windows and takes the one that is waited for least.
//
// The smallest times of a span of steps count, since others include waiting for a slower member. A
// choice stays until the link has been another one, faster or slower by a quarter, for some spans
// in a row: then it is measured anew. Only rank 0 has a tuner that decides; the others are told.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CN_TUNER_STEPS 8                   // of a span
#define CN_TUNER_SPANS 2                   // with another link before it is believed
#define CN_BUCKET_LEAST ((size_t)64 << 10) // bytes
#define CN_BUCKET_FIRST ((size_t)1 << 20)  // before anything was measured
#define CN_WINDOW_MOST 8                   // buckets of a call

// What a call costs.
struct cn_bucket_costs {
    double latency_us, byte_us; // 0: not measured
};

struct cn_bucket_choice {
    size_t bucket;   // bytes
    uint32_t window; // buckets of each call but the first
};

struct cn_bucket_tuner {
    uint32_t steps;                 // of this span
    double latency_us;              // least of it; 0: not measured
    double call_us, call_bytes;     // of the call that took least for a byte
    struct cn_bucket_costs settled; // what the present choice was made of; 0: none was made
    struct cn_bucket_costs now;     // of the last whole span
    uint32_t away;                  // spans in a row in which now was not what is settled
    bool shifted;                   // it is to be measured anew
};

enum cn_tuner_event {
    CN_TUNER_NOTHING,
    CN_TUNER_CHOSE,   // choice holds from the next step on, as before or another; see settled
    CN_TUNER_SHIFTED, // the link is another one: see settled and now; a choice follows
};

// A call took so long; of at most 4 KiB it is the latency that is measured.
void cn_bucket_tuner_add(struct cn_bucket_tuner *tuner, size_t bytes, double us);

// At the end of a step whose total bytes of gradients came out of a backward pass; compute_us is
// what a micro-batch takes, its forward pass too. choice is what the step used, and what the next
// one is to use.
enum cn_tuner_event cn_bucket_tuner_step(struct cn_bucket_tuner *tuner, size_t total,
                                         double compute_us, struct cn_bucket_choice *choice);

// How long a step waits for its gradients after a backward pass that makes a byte in made_us.
double cn_bucket_tuner_exposed(const struct cn_bucket_costs *costs, size_t total, double made_us,
                               const struct cn_bucket_choice *choice);
