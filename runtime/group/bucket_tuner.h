// bucket_tuner.h - how many bytes of gradients to reduce at a time, from what calls took.
//
// A call costs a latency and a time for each byte. Small buckets pay the latency often; a large one
// begins late, when all of its gradients are there, and what is left of the last one when the
// backward pass ends is waited for. With N bytes, latency a, and c the time in which a byte
// is made or sent, whichever is longer, the sum a * N / s + c * s is least at s = sqrt(a * N / c).
//
// The smallest times of a window of steps count, since others include waiting for a slower member;
// a new window forgets the one before, so a link that changes is followed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CN_TUNER_STEPS 16                  // of a window
#define CN_BUCKET_LEAST ((size_t)64 << 10) // bytes
#define CN_BUCKET_FIRST ((size_t)1 << 20)  // before anything was measured

struct cn_bucket_tuner {
    uint32_t steps;
    double latency_us, byte_us; // 0: not measured in this window
};

// A call took so long; of at most 4 KiB it is the latency that is measured.
void cn_bucket_tuner_add(struct cn_bucket_tuner *tuner, size_t bytes, double us);

// At the end of a step that computed for compute_us. Returns the bytes of the next steps' buckets:
// now, unless a window has ended and another size is better by a half.
size_t cn_bucket_tuner_step(struct cn_bucket_tuner *tuner, size_t total, double compute_us,
                            size_t now);
