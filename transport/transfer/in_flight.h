// in_flight.h - the parcels of a transfer: unsent, in flight, lost or done.
//
// A parcel is the content of one message: consecutive chunks, as many as the path takes. Every
// transmission has a number, its order. The parcels in flight form a list in that order. Lost
// parcels form a list that goes out before new ones.
//
// Losses are found by time, as in RACK-TLP (RFC 8985). A parcel is lost when a later transmission
// has arrived and a round trip and a margin for reordering have passed since the parcel was sent.
// The margin grows each time that a lost parcel turns out to have arrived. After the last parcel
// nothing follows that could reveal a loss, so the parcels in flight are soon sent again, or only
// the newest if they are many; this happens at most twice. When nothing comes back at all, a single
// parcel is sent again to provoke an answer. After several such time-outs the link counts as gone.
// Over a stream parcels are lost only with the session.
// Threading: none.
#pragma once

#include "runtime/base/error.h"
#include "transport/coap/exchange.h"
#include "transport/coap/retry.h"
#include "transport/transfer/controller.h"

#define CN_IN_FLIGHT_NONE UINT32_MAX
#define CN_IN_FLIGHT_UNSURE UINT8_MAX // it is unknown which transmission of a parcel arrived
#define CN_TRANSFER_OVERHEAD 113 // bytes of IPv4, UDP, DTLS and CoAP around a parcel, on the wire

struct cn_log_quota;

// The settings that a link gives an upload or a download. Pointers are borrowed.
struct cn_transfer {
    struct cn_exchange *exchange;
    struct cn_rtt *rtt;
    struct cn_controller *controller; // of this direction
    const char *board;      // the board's name, which gives an upload its id; NULL: wait for the id
    uint8_t kind;           // first byte of the transfer's tags
    uint16_t generation;    // distinguishes replies to an earlier transfer
    uint32_t chunk_size;    // bytes
    uint32_t parcel_chunks; // largest number of chunks in a message
    uint64_t seed;          // of the jitter
    struct cn_log_quota *lines; // limits the log lines about the other side; NULL: no limit
};

struct cn_in_flight_parcel {
    struct cn_send_mark mark; // of the newest transmission
    uint32_t order;           // of the newest transmission; 0: never sent, or given up
    uint32_t earlier_order;   // of the transmission before the newest; 0: there was none
    uint32_t earlier_us;      // time between these two transmissions
    uint32_t previous, next;  // neighbours in the list of sent or of lost parcels
    uint32_t size;            // bytes on the wire
    uint8_t state;            // unsent, sent, lost or done
    uint8_t tries; // transmissions mod 256; part of the tag: an answer names its transmission
    bool probe;    // sent again to provoke an answer, not because it was lost
};

struct cn_in_flight_list {
    uint32_t first, last;
};

struct cn_in_flight {
    struct cn_in_flight_parcel *parcels; // owned
    struct cn_controller *controller;
    uint32_t count;      // number of parcels
    uint32_t base;       // the parcels before this one are done
    uint32_t fresh;      // the parcels from this one on were never sent
    uint32_t done;       // number of parcels that are done
    uint64_t in_flight;  // bytes on the wire
    uint32_t next_order; // of the next transmission; counts from 1
    struct cn_in_flight_list sent, lost;
    // RACK: the newest transmission that arrived, and its round trip.
    uint32_t newest_order;
    uint64_t newest_rtt_us;
    unsigned margin;   // for reordering, in quarters of the smallest round trip
    unsigned calm;     // losses found since one was wrong or the margin shrank
    uint64_t heard_us; // start of the time-out: the last answer or time-out
    unsigned silences; // time-outs since something arrived
    unsigned probes;   // repetitions of the end of the transfer since something arrived
    bool urgent;       // a time-out queued a parcel, which goes whatever is in flight
    bool gone;         // the link counted as gone since cn_in_flight_take_gone
    uint64_t sent_us;  // time of the last transmission
    // Repeated transmissions; parcels that were declared lost and had arrived.
    uint64_t retransmissions, spurious;
};

// Starts with count unsent parcels. Borrows controller until deinit.
cn_err cn_in_flight_init(struct cn_in_flight *flight, struct cn_controller *controller,
                         uint32_t count);
void cn_in_flight_deinit(struct cn_in_flight *flight);

// Makes all parcels unsent again.
void cn_in_flight_restart(struct cn_in_flight *flight);

// Returns the parcel to send next, or CN_IN_FLIGHT_NONE.
uint32_t cn_in_flight_next(struct cn_in_flight *flight);

// Returns true when the next parcel may go now, as cn_controller_may_send does. The parcel that a
// time-out queued needs no room in the window: without an answer the window may stay full for ever.
bool cn_in_flight_may_send(const struct cn_in_flight *flight, uint64_t now_us, uint64_t *wake_us);

// Notes a transmission of the parcel. size: bytes on the wire.
void cn_in_flight_sent(struct cn_in_flight *flight, uint32_t parcel, uint32_t size,
                       uint64_t now_us);

// Notes that the parcel arrived. behind is the number of transmissions after the one that arrived:
// 0 for the newest. It is CN_IN_FLIGHT_UNSURE when the answer to another parcel reports this one,
// as that does not show which transmission arrived. Returns false when the arrival was known. After
// all arrivals of one answer, call cn_in_flight_acked.
bool cn_in_flight_arrived(struct cn_in_flight *flight, uint32_t parcel, uint8_t behind,
                          uint64_t now_us);

// Marks the parcel as done because the peer had it before; acknowledges no transmission.
void cn_in_flight_settle(struct cn_in_flight *flight, uint32_t parcel);

bool cn_in_flight_is_done(const struct cn_in_flight *flight, uint32_t parcel);

// Queues the parcel to be sent again, because its receiver has lost it.
void cn_in_flight_lose(struct cn_in_flight *flight, uint32_t parcel);

// Queues the parcel to be sent again, because it arrived but its answer was held back.
void cn_in_flight_again(struct cn_in_flight *flight, uint32_t parcel, uint64_t now_us);

// Queues all parcels in flight to be sent again, because the session that would answer has ended.
void cn_in_flight_lose_all(struct cn_in_flight *flight);

// Finds losses and updates the controller after an answer. rtt_us: the round trip of the
// transmission that it answers, 0 when that transmission is not certain.
void cn_in_flight_acked(struct cn_in_flight *flight, uint64_t rtt_us, uint64_t now_us);

// Finds losses that passing time reveals, and handles time-outs. Lowers *wake_us to the time of the
// next. Returns true when the next parcel should ask for an answer.
bool cn_in_flight_expire(struct cn_in_flight *flight, struct cn_rtt *rtt, uint64_t now_us,
                         uint64_t *wake_us);

// Returns true once each time that the link counted as gone. The cause may be that full messages
// are too large for the path.
bool cn_in_flight_take_gone(struct cn_in_flight *flight);

// Returns the tag of a transmission: kind, generation, tries and parcel in one number.
uint64_t cn_transfer_tag(const struct cn_transfer *transfer, uint8_t tries, uint32_t parcel);

// Splits a tag into tries and parcel. Returns whether the tag belongs to this transfer.
bool cn_transfer_read_tag(const struct cn_transfer *transfer, uint64_t tag, uint8_t *tries,
                          uint32_t *parcel);
