// controller.h - how fast to send: a model of the path, and what follows from it.
//
// The controller keeps two figures of the path: the largest rate at which data lately arrived, and
// the smallest round-trip time. It paces what is sent at the first and keeps no more than twice
// their product in flight, so that it fills a link without filling its queue, and does not take
// random loss for congestion. The phases are those of BBR (draft-cardwell-iccrg-bbr-congestion-
// control-00), the samples of the rate those of draft-cheng-iccrg-delivery-rate-estimation-00.
// Differences: a round trip close to the smallest one renews it, so that a link of our own needs no
// pause to measure it; that pause leaves half a window; the window grows with a queue that stays
// after our own was drained, as it is another flow's; the rate makes up for loss that comes
// without a queue; after the link was gone everything starts anew.
//
// Over a stream the kernel's congestion control decides when bytes go. What is handed to it is then
// not paced, but for the limit of the profile, and only bounded, so that it never lacks bytes and
// its queue stays short.
//
// A pure unit: time comes in as an argument, in microseconds. Bytes are those on the wire.
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CN_CONTROLLER_ROUNDS 10 // round trips that the largest rate is taken over

enum cn_controller_phase {
    CN_CONTROLLER_STARTUP,   // doubles the rate each round trip until it stops growing
    CN_CONTROLLER_DRAIN,     // lets the queue go that this made
    CN_CONTROLLER_PROBE_BW,  // cruises; for one round trip in eight a quarter faster, one slower
    CN_CONTROLLER_PROBE_RTT, // half a window, to see the path without a queue of our own
};

// The state of the path when something was sent; kept with what is in flight.
struct cn_send_mark {
    uint64_t sent_us;
    uint64_t delivered;    // bytes that had arrived in all,
    uint64_t delivered_us; // and when the last of them was known
    uint64_t first_us;     // when the newest of those had been sent
    bool limited;          // there was not enough to send: the rate says little
};

struct cn_controller {
    enum cn_controller_phase phase;
    uint64_t rate_limit; // bytes per second; 0: no limit
    uint64_t window_max; // bytes
    uint32_t unit;       // bytes of a full datagram
    bool stream;
    uint64_t srtt_us; // a first idea of the round trip, for pacing before any sample
    double bandwidth; // bytes per second; 0: no sample yet
    double round_rate[CN_CONTROLLER_ROUNDS]; // largest of each round
    uint64_t min_rtt_us, min_rtt_at_us;      // 0: no sample yet
    uint64_t cycle_rtt_us, floor_rtt_us;     // smallest of this cycle of PROBE_BW, of the last one
    uint64_t delivered, delivered_us, first_us;
    uint64_t lost;              // bytes in all
    uint64_t limited_until;     // samples from before this was delivered are of too little data
    uint64_t rounds, round_end; // .delivered at which the round is over
    uint64_t round_lost, round_delivered, round_rtt_us; // of this round; 0: no sample
    uint64_t last_lost, last_delivered;                 // of the round before
    uint64_t round_us, last_us;                         // when this round and that one began
    bool flooded;                                       // that one lost much behind a queue
    double forgotten;          // the rate before it was last forgotten; 0: never, or brought back
    uint64_t forgotten_lost;   // bytes for which it was
    uint64_t forgotten_undone; // of these, not lost after all
    uint64_t forgotten_round;  // .rounds then
    double loss;               // share lost without a queue, smoothed
    double full_rate;          // startup: the rate last time it grew by a quarter
    unsigned full_rounds;      // startup: rounds since
    bool full;                 // the link has been filled once
    unsigned cycle;            // of PROBE_BW
    uint64_t cycle_us;         // when it began
    uint64_t probe_end_us;     // PROBE_RTT: 0 until half a window is in flight
    uint64_t probe_rtt_us;     // smallest seen while probing
    uint64_t next_us;          // when the next datagram may go
    uint64_t active_us;        // last sent
    // The sample that is being put together.
    struct cn_send_mark newest;
    bool sampled;
};

// unit: bytes of a full datagram. rtt_us: a first idea, 0 for none.
void cn_controller_init(struct cn_controller *controller, uint32_t unit, uint64_t window_max,
                        uint64_t rate_bps, uint64_t rtt_us);

// The path has another MTU, or it is a stream now. What is known of it stays.
void cn_controller_fit(struct cn_controller *controller, uint32_t unit, bool stream);

// Bytes that may be in flight.
uint64_t cn_controller_window(const struct cn_controller *controller);

// Bytes per second at which to send now; 0: not paced yet.
double cn_controller_rate(const struct cn_controller *controller);

// True when a datagram may go now. Otherwise *wake_us is lowered to the time when the pace allows
// it; it is left alone when the window is full.
bool cn_controller_may_send(const struct cn_controller *controller, uint64_t in_flight,
                            uint64_t now_us, uint64_t *wake_us);

void cn_controller_sent(struct cn_controller *controller, uint32_t size, uint64_t in_flight,
                        uint64_t now_us, struct cn_send_mark *mark);

// Nothing more is there to send: what arrives until this is through says little about the path.
void cn_controller_limited(struct cn_controller *controller, uint64_t in_flight);

// One datagram is known to have arrived; acked follows when all that one answer told are in.
void cn_controller_arrived(struct cn_controller *controller, const struct cn_send_mark *mark,
                           uint32_t size, uint64_t now_us);
void cn_controller_acked(struct cn_controller *controller, uint64_t rtt_us, uint64_t in_flight,
                         uint64_t now_us);

void cn_controller_lost(struct cn_controller *controller, uint32_t size);

// It was not lost after all. Brings back a rate that was forgotten because of such losses.
void cn_controller_undo_loss(struct cn_controller *controller, uint32_t size);

// Nothing came back for several time-outs: the link is gone, and another one when it comes back.
void cn_controller_gone(struct cn_controller *controller);
