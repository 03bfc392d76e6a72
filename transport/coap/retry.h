// retry.h - when to try again: round-trip times, time-outs and back-off.
//
// The round-trip estimate and the time-out are those of RFC 6298 with a lower bound of 100 ms.
// Rates are the controller's (controller.h). Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cn_rtt {
    uint64_t srtt_us;      // 0: no sample yet
    uint64_t variation_us; // RTTVAR of RFC 6298
    unsigned backoff;      // doublings of the time-out since the last sample
};

// Adds a round-trip time and ends the doubling of the time-out. The caller keeps Karn's rule: only
// the answer to a request that was sent once under its tag gives a sample.
void cn_rtt_add(struct cn_rtt *rtt, uint64_t sample_us);

// Doubles the time-out, up to ten times and 16 s, until a sample comes.
void cn_rtt_back_off(struct cn_rtt *rtt);

// Returns the time-out: 1 s before the first sample, then between 100 ms and 16 s.
uint64_t cn_rtt_timeout_us(const struct cn_rtt *rtt);

// Back-off with jitter. Each delay is drawn from [d/2, d], where d doubles from min_ms to max_ms.
struct cn_backoff {
    uint64_t min_ms, max_ms;
    uint64_t seed;  // of the random delays
    uint64_t draws; // random numbers drawn so far
    uint32_t tries; // delays since the start; set to 0 to start again from min_ms
};

// Returns the next delay.
uint64_t cn_backoff_next_ms(struct cn_backoff *backoff);
