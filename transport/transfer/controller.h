// controller.h - how fast to send: a model of the path, and the rate and window that follow from
// it.
//
// The controller keeps two figures of the path: the largest rate at which data arrived lately, and
// the smallest round-trip time. It sends at that rate and keeps at most about twice their product
// in flight. So it fills a link without filling its queue, and does not take random loss for
// congestion. The phases are those of BBR (draft-cardwell-iccrg-bbr-congestion-control-00). The
// rate is sampled as in draft-cheng-iccrg-delivery-rate-estimation-00. The differences from BBR:
//
// - A round trip close to the smallest one renews it. A link without other flows thus needs no
//   pause to measure it.
// - The pause that measures the round trip keeps half a product of rate and round trip in flight.
// - A queue that stays after our own was drained is a rival's, such as TCP's with CUBIC. Beside it
//   the window is CUBIC's as well (rival.h), until a probe of the round trip finds no queue. A rate
//   that stays although we send less shows that the link is slower. The same round trip in probe
//   after probe shows that the path is longer.
// - The rate makes up for loss that comes without a queue.
// - After the link was gone, the model of the path starts from nothing.
//
// Over a stream the kernel's congestion control decides when bytes go. The controller then applies
// only the profile's rate limit and the window: the kernel never lacks bytes, and its queue stays
// short.
//
// Pure functions: time is an argument, in microseconds. Bytes are those on the wire.
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "transport/transfer/rival.h"

#define CN_CONTROLLER_ROUNDS 10 // number of round trips over which the largest rate is taken

enum cn_controller_phase {
    CN_CONTROLLER_STARTUP,   // doubles the rate each round trip until it stops growing
    CN_CONTROLLER_DRAIN,     // empties the queue that STARTUP made
    CN_CONTROLLER_PROBE_BW,  // cruises; one round trip in eight is 1/4 faster, one 1/4 slower
    CN_CONTROLLER_PROBE_RTT, // sends less, to measure the round trip without a queue of our own
    CN_CONTROLLER_COMPETE,   // shares the link with a flow that keeps a queue (rival.h)
};

// The state of the path when a datagram was sent; kept while the datagram is in flight.
struct cn_send_mark {
    uint64_t sent_us;      // when the datagram was sent
    uint64_t delivered;    // bytes known to have arrived until then, of the whole connection
    uint64_t delivered_us; // when the last of the delivered bytes became known
    uint64_t first_us;     // when the newest of the delivered bytes had been sent
    bool limited;          // there was not enough to send: the rate says little
};

struct cn_controller {
    enum cn_controller_phase phase;
    uint64_t rate_limit_bytes_s; // bytes per second; 0: no limit
    uint64_t window_max;         // bytes
    uint32_t unit;               // bytes of a full datagram
    bool stream;
    uint64_t srtt_us; // an estimate of the round trip, for pacing while beginning is set; 0: none
    double bandwidth; // largest of round_rate, bytes per second; 0: no sample yet
    double round_rate[CN_CONTROLLER_ROUNDS]; // largest rate of each round, bytes per second
    double rate_max;                    // rates above it are not learned in this round; 0: all are
    uint64_t min_rtt_us, min_rtt_at_us; // smallest round trip and when it was seen; 0: none
    uint64_t cycle_rtt_us;              // smallest round trip of this cycle of PROBE_BW
    // As in cn_send_mark, for the next datagram.
    uint64_t delivered, delivered_us, first_us;
    uint64_t lost; // bytes lost in all
    // Samples say little until this many bytes are delivered: there was too little to send.
    uint64_t limited_until;
    uint64_t rounds, round_end; // rounds so far; value of delivered at which this round ends
    // Bytes lost and delivered in this round; its smallest round trip, 0: no sample.
    uint64_t round_lost, round_delivered, round_rtt_us;
    uint64_t answer_us, round_quiet_us; // the last answer; longest time without one in this round
    uint64_t last_lost, last_delivered; // bytes lost and delivered in the round before
    uint64_t round_us, last_us;         // when this round and the round before began
    bool flooded;                       // the round before lost much behind a queue
    double forgotten; // bandwidth before forget_rates lowered it; 0: not lowered, or restored
    uint64_t forgotten_lost;   // lost bytes that made forget_rates lower the bandwidth
    uint64_t forgotten_undone; // bytes of forgotten_lost that arrived after all
    uint64_t forgotten_round;  // value of rounds when forget_rates lowered the bandwidth
    double loss;               // share of bytes lost without a queue, smoothed; 0 behind a queue
    double quiet_loss;         // the same of rounds without a queue only
    uint64_t begun;            // value of delivered when the model of the path began
    bool beginning;            // fewer than two round trips have passed since then
    double full_rate;          // STARTUP: the rate when it last grew by a quarter
    unsigned full_rounds;      // STARTUP: rounds since full_rate was set
    bool full;                 // the link has been filled once
    uint64_t drain_round;      // DRAIN: value of rounds when it began
    unsigned cycle;            // PROBE_BW: index of the gain in use
    uint64_t cycle_us;         // PROBE_BW: when this gain began
    uint64_t probe_end_us;     // PROBE_RTT: end of the phase; 0 until little enough is in flight
    uint64_t probe_rtt_us;     // PROBE_RTT: smallest round trip of the phase
    uint64_t probe_begin_us;   // PROBE_RTT: when the phase began
    // PROBE_RTT: value of delivered when the phase began, then when little enough was in flight.
    uint64_t probe_delivered;
    double before_probe;   // PROBE_RTT: rate of arrival until then, bytes per second
    struct cn_rival rival; // COMPETE: the window
    uint64_t compete_us;   // COMPETE: when it began, or went on after PROBE_RTT
    bool unsure;           // COMPETE: the probe could not tell whether there is a rival
    uint64_t suspect_us;   // PROBE_BW: no rival is suspected before this time
    unsigned idle_rounds;  // COMPETE: rounds in a row without a queue
    // crowded_rtt_us is the smallest round trip of the last probe that found a queue of others; 0:
    // no probe did. same_probes counts the probes in a row since then that found the same.
    uint64_t crowded_rtt_us;
    unsigned same_probes;
    uint64_t last_rtt_us; // smallest round trip of the round before; 0: no sample
    uint64_t next_us;     // when the next datagram may go
    uint64_t active_us;   // when the last datagram was sent; 0: none
    // The newest datagram that the current answer acknowledges; sampled: there is one.
    struct cn_send_mark newest;
    bool sampled;
};

// Sets up the model of an unknown path. unit: bytes of a full datagram. rate_bps: limit in bits per
// second, 0 for none. rtt_us: an estimate of the round trip, 0 for none.
void cn_controller_init(struct cn_controller *controller, uint32_t unit, uint64_t window_max,
                        uint64_t rate_bps, uint64_t rtt_us);

// Sets the size of a full datagram and whether the path is a stream. The model of the path stays.
void cn_controller_fit(struct cn_controller *controller, uint32_t unit, bool stream);

// Returns the number of bytes that may be in flight.
uint64_t cn_controller_window(const struct cn_controller *controller);

// Returns the rate at which to send now, in bytes per second; 0: no pacing.
double cn_controller_rate(const struct cn_controller *controller);

// Returns true when a datagram may go now. Otherwise lowers *wake_us to the time when the pace
// allows it. A full window leaves *wake_us as it is.
bool cn_controller_may_send(const struct cn_controller *controller, uint64_t in_flight,
                            uint64_t now_us, uint64_t *wake_us);

// Notes that a datagram of size bytes was sent and fills in its mark. in_flight: bytes in flight
// before it.
void cn_controller_sent(struct cn_controller *controller, uint32_t size, uint64_t in_flight,
                        uint64_t now_us, struct cn_send_mark *mark);

// Notes that nothing is left to send: the rate says little until the bytes in flight have arrived.
void cn_controller_limited(struct cn_controller *controller, uint64_t in_flight);

// Notes that one datagram has arrived. mark: of its transmission, NULL when it is not certain which
// one arrived. After all arrivals that one answer reports, call acked.
void cn_controller_arrived(struct cn_controller *controller, const struct cn_send_mark *mark,
                           uint32_t size, uint64_t now_us);

// Updates the model after an answer. rtt_us: its round trip, 0 when not known. in_flight: bytes
// still in flight.
void cn_controller_acked(struct cn_controller *controller, uint64_t rtt_us, uint64_t in_flight,
                         uint64_t now_us);

// Notes that a datagram of size bytes was lost.
void cn_controller_lost(struct cn_controller *controller, uint32_t size);

// Notes that a datagram was not lost after all. Restores the rate if it was lowered because of
// losses of which more than half have been undone.
void cn_controller_undo_loss(struct cn_controller *controller, uint32_t size);

// Forgets the path, because nothing came back for several time-outs: the link may be another one
// when it returns. Totals, limits and the round trip as an estimate stay.
void cn_controller_gone(struct cn_controller *controller);
