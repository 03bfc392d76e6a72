// in_flight.h - the parcels of a transfer: unsent, in flight, lost or done.
//
// A parcel is what one message carries: some chunks that follow each other, as many as the path
// takes. Every transmission has a number (order). Parcels in flight are a list in that order, lost
// ones a list that goes out before anything new.
//
// Losses are found by time, as RACK-TLP does (RFC 8985): what was sent longer before the newest
// transmission that arrived than a round trip and a margin for reordering allow is lost. The margin
// grows each time that this proves wrong. Behind the last parcel nothing follows that could show a
// loss, so it is soon sent again, twice at most. When nothing comes back at all, a single parcel is
// sent again to provoke an answer; after several of these the link is taken to be gone. Over a
// stream nothing is lost but with its session. Threading: none.
#pragma once

#include "runtime/base/error.h"
#include "transport/coap/exchange.h"
#include "transport/coap/retry.h"
#include "transport/transfer/controller.h"

#define CN_IN_FLIGHT_NONE UINT32_MAX
#define CN_IN_FLIGHT_UNSURE UINT8_MAX // which transmission of a parcel arrived
#define CN_TRANSFER_OVERHEAD 113 // bytes of IPv4, UDP, DTLS and CoAP around a parcel, on the wire

struct cn_log_quota;

// What an upload or a download shares with its link.
struct cn_transfer {
    struct cn_exchange *exchange;
    struct cn_rtt *rtt;
    struct cn_controller *controller; // of this direction
    const char *board;   // its name; borrowed. NULL: nothing is sent before its id came
    uint8_t kind;        // first byte of its tags
    uint16_t generation; // tells the replies of a former transfer apart
    uint32_t chunk_size;
    uint32_t parcel_chunks;     // chunks a message carries, at most
    uint64_t seed;              // of its jitter
    struct cn_log_quota *lines; // limits the log lines about the other side; NULL: no limit
};

struct cn_in_flight_parcel {
    struct cn_send_mark mark;
    uint32_t order;
    uint32_t earlier_order;  // of the transmission before; 0: there was none
    uint32_t earlier_us;     // by how much that one was sent earlier
    uint32_t previous, next; // in its list
    uint32_t size;           // bytes on the wire
    uint8_t state;
    uint8_t tries; // mod 256; part of the tag, so that an answer names its transmission
    bool probe;    // sent again to provoke an answer, not because it was lost
};

struct cn_in_flight_list {
    uint32_t first, last;
};

struct cn_in_flight {
    struct cn_in_flight_parcel *parcels; // owned
    struct cn_controller *controller;
    uint32_t count;
    uint32_t base;  // all before it are done
    uint32_t fresh; // parcels from here on were never sent
    uint32_t done;
    uint64_t in_flight; // bytes
    uint32_t next_order;
    struct cn_in_flight_list sent, lost;
    // RACK: the newest transmission that arrived.
    uint32_t newest_order;
    uint64_t newest_rtt_us;
    unsigned margin; // quarters of the smallest round trip
    unsigned calm;   // losses since the margin was last wrong
    uint64_t heard_us;
    unsigned silences; // time-outs since something arrived
    unsigned probes;   // of the end of the transfer, since something arrived
    bool gone;         // the link counted as gone
    uint64_t sent_us;  // last
    uint64_t retransmissions, spurious;
};

cn_err cn_in_flight_init(struct cn_in_flight *flight, struct cn_controller *controller,
                         uint32_t count);
void cn_in_flight_deinit(struct cn_in_flight *flight);

// All parcels are unsent again.
void cn_in_flight_restart(struct cn_in_flight *flight);

// The parcel to send next, or CN_IN_FLIGHT_NONE.
uint32_t cn_in_flight_next(struct cn_in_flight *flight);

// size: bytes on the wire.
void cn_in_flight_sent(struct cn_in_flight *flight, uint32_t parcel, uint32_t size,
                       uint64_t now_us);

// The parcel arrived. behind: 0 when the answer is that to its newest transmission, 1 for the one
// before; CN_IN_FLIGHT_UNSURE when an answer only tells of it, which does not show when what
// arrived was sent. Returns false when the arrival was known. cn_in_flight_acked follows when all
// that an answer told was passed on.
bool cn_in_flight_arrived(struct cn_in_flight *flight, uint32_t parcel, uint8_t behind,
                          uint64_t now_us);

// The peer has it from before: no transmission of ours is acknowledged.
void cn_in_flight_settle(struct cn_in_flight *flight, uint32_t parcel);

bool cn_in_flight_is_done(const struct cn_in_flight *flight, uint32_t parcel);

// The parcel has to be sent again: its receiver has lost it.
void cn_in_flight_lose(struct cn_in_flight *flight, uint32_t parcel);

// It was heard of, but its answer is held back: it has to be sent again at once.
void cn_in_flight_again(struct cn_in_flight *flight, uint32_t parcel, uint64_t now_us);

// Nothing in flight will be answered: the session ended.
void cn_in_flight_lose_all(struct cn_in_flight *flight);

// An answer was heard. rtt_us: of the transmission that it answers, 0 when that is not certain.
// Finds losses and lets the controller learn.
void cn_in_flight_acked(struct cn_in_flight *flight, uint64_t rtt_us, uint64_t now_us);

// Does what time alone brings: losses by reordering time, and time-outs. Lowers *wake_us to when
// there will be more. True when the next parcel should ask for an answer.
bool cn_in_flight_expire(struct cn_in_flight *flight, struct cn_rtt *rtt, uint64_t now_us,
                         uint64_t *wake_us);

// True once each time that the link counted as gone: the cause may be that full messages are too
// large for it.
bool cn_in_flight_take_gone(struct cn_in_flight *flight);

uint64_t cn_transfer_tag(const struct cn_transfer *transfer, uint8_t tries, uint32_t parcel);

// True when the tag belongs to this transfer; then the rest is set.
bool cn_transfer_read_tag(const struct cn_transfer *transfer, uint64_t tag, uint8_t *tries,
                          uint32_t *parcel);
