// pacer.h - how fast to send: round-trip times, the window of chunks in flight, the uplink's rate.
//
// The round-trip estimate and the time-out are those of RFC 6298 with a lower bound of 100 ms. The
// window follows RFC 5681 (slow start, additive increase, halving once for each window with a
// loss). A rate-based controller can take the window's place behind the same functions. Times are
// microseconds of cn_platform_now_us. Threading: none.
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

struct cn_pacer {
    double window;    // chunks
    double threshold; // chunks; slow start below
    uint32_t window_max;
    uint32_t recovery; // losses of transmissions before this one were answered already
    uint64_t rate_bps; // 0: no limit
    double credit;     // bytes that may be sent now
    uint64_t credited_us;
};

void cn_pacer_init(struct cn_pacer *pacer, uint32_t window_max, uint64_t rate_bps, uint64_t now_us);

// True when a chunk may go now. Otherwise *wake_us is lowered to the time when the rate allows it;
// it is left alone when the window is full.
bool cn_pacer_may_send(struct cn_pacer *pacer, uint32_t in_flight, uint64_t now_us,
                       uint64_t *wake_us);

// size: bytes on the wire.
void cn_pacer_sent(struct cn_pacer *pacer, uint32_t size);

void cn_pacer_acked(struct cn_pacer *pacer, uint32_t count);

// The transmission number order was lost; next is the number that the next one gets.
void cn_pacer_lost(struct cn_pacer *pacer, uint32_t order, uint32_t next);

// Nothing came back for a whole time-out.
void cn_pacer_timed_out(struct cn_pacer *pacer, uint32_t next);

// Back-off with jitter: each delay is drawn from [d/2, d], d doubles from min_ms to max_ms.
struct cn_backoff {
    uint64_t min_ms, max_ms;
    uint64_t seed;
    uint64_t draws;
    uint32_t tries; // 0 starts over
};

uint64_t cn_backoff_next_ms(struct cn_backoff *backoff);
