// cubic_flow.h - a TCP flow with CUBIC (RFC 9438) that always has data to send, beside Cairn's.
//
// The flow is a model. It has slow start with HyStart's exit by delay, congestion avoidance, and
// one reduction for all losses of a window. Each lost packet is sent again at once. There is no
// pacing, and a time-out happens only when all of a window was lost. Each packet is acknowledged,
// and acknowledgements return after a constant delay. Pure: the clock is the exchange's.
#pragma once

#include <stdint.h>

#include "transport/coap/exchange.h"

#define CN_CUBIC_FLIGHT 8192 // packets in flight, at most
#define CN_CUBIC_PACKET 1448 // bytes of content of a packet

struct cn_cubic_flow {
    uint64_t back_us; // delay of an acknowledgement, from the far end to the sender
    double window;    // congestion window, packets
    double threshold; // slow-start threshold, packets
    double most;      // W_max of the RFC, packets
    // Clock of the last reduction.
    uint64_t reduced_us;
    uint64_t min_rtt_us;
    uint64_t recovery; // first packet after the window of the last reduction
    // The numbers of packets that were sent, and of those that were acknowledged or found lost.
    uint64_t sent, settled;
    uint64_t delivered; // packets that were acknowledged
    struct cn_cubic_packet {
        // When the packet was sent, and when its acknowledgement arrives; acked_us 0: it was lost.
        uint64_t sent_us, acked_us;
    } flight[CN_CUBIC_FLIGHT];
};

// Begins a flow. rtt_us is the round trip without a queue.
void cn_cubic_init(struct cn_cubic_flow *flow, uint64_t rtt_us);

// Begins as a flow that has run for long: its window fills the link and the link's queue.
void cn_cubic_begin_full(struct cn_cubic_flow *flow, uint64_t rate_bps, uint64_t queue_us);

// Takes the acknowledgements that have arrived, and sends what the window allows.
void cn_cubic_step(struct cn_cubic_flow *flow, struct cn_exchange *exchange);
