// cubic_flow.h - a TCP flow with CUBIC (RFC 9438) that always has something to send, beside ours.
//
// A model: slow start with HyStart's exit by delay, congestion avoidance, one reduction for the
// losses of a window, each lost packet sent again at once. Without pacing, time-outs and delayed
// acknowledgements, which return after a constant delay. Pure: the clock is the exchange's.
#pragma once

#include <stdint.h>

#include "transport/coap/exchange.h"

#define CN_CUBIC_FLIGHT 8192 // packets, at most
#define CN_CUBIC_PACKET 1448 // bytes of content

struct cn_cubic_flow {
    uint64_t back_us; // from the far end to the sender
    double window;    // packets
    double threshold; // of slow start
    double most;      // the window at the last reduction
    uint64_t reduced_us;
    uint64_t min_rtt_us;
    uint64_t recovery; // number of the packet with which the reduction's window was over
    uint64_t sent, settled;
    uint64_t delivered; // packets
    struct cn_cubic_packet {
        uint64_t sent_us, acked_us; // acked_us 0: lost
    } flight[CN_CUBIC_FLIGHT];
};

// rtt_us: without a queue.
void cn_cubic_init(struct cn_cubic_flow *flow, uint64_t rtt_us);

// The flow has been there for long: its window fills the link and its queue.
void cn_cubic_begin_full(struct cn_cubic_flow *flow, uint64_t rate_bps, uint64_t queue_us);

// Takes the acknowledgements that are due and sends what the window allows.
void cn_cubic_step(struct cn_cubic_flow *flow, struct cn_exchange *exchange);
