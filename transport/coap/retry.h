// retry.h - when to try again: round-trip times, time-outs, back-off. controller.h says how fast.
//
// The round-trip estimate and the time-out are those of RFC 6298 with a lower bound of 100 ms.
// Times are microseconds of cn_platform_now_us. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cn_rtt {
    uint64_t srtt_us; // 0: no sample yet
    uint64_t variation_us;
    unsigned backoff; // doublings since the last answer
};

// Adds the sample of a request that was sent once under its tag (Karn's rule is the caller's job).
void cn_rtt_add(struct cn_rtt *rtt, uint64_t sample_us);

// The next time-out is twice as long, until a sample comes.
void cn_rtt_back_off(struct cn_rtt *rtt);

uint64_t cn_rtt_timeout_us(const struct cn_rtt *rtt);

// Back-off with jitter: each delay is drawn from [d/2, d], d doubles from min_ms to max_ms.
struct cn_backoff {
    uint64_t min_ms, max_ms;
    uint64_t seed;
    uint64_t draws;
    uint32_t tries; // 0 starts over
};

uint64_t cn_backoff_next_ms(struct cn_backoff *backoff);
