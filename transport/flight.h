// flight.h - the chunks of a transfer: unsent, in flight, lost or done.
//
// Every transmission has a number (order). Chunks in flight are a list in that order, lost ones a
// list that goes out before anything new. Threading: none.
#pragma once

#include "runtime/base/error.h"
#include "transport/exchange.h"
#include "transport/pacer.h"

#define CN_FLIGHT_NONE UINT32_MAX

// What an upload or a download shares with its link.
struct cn_transfer {
    struct cn_exchange *exchange;
    struct cn_rtt *rtt;
    uint8_t kind;        // first byte of its tags
    uint16_t generation; // tells the replies of a former transfer apart
    uint32_t chunk_size;
    uint32_t window;   // chunks, at most
    uint64_t rate_bps; // uplink; 0: no limit
    uint64_t seed;     // of its jitter
};

struct cn_flight_chunk {
    uint64_t sent_us;
    uint32_t order;
    uint32_t previous, next; // in its list
    uint8_t state;
    uint8_t tries; // mod 256; part of the tag, so that an answer names its transmission
};

struct cn_flight_list {
    uint32_t first, last;
};

struct cn_flight {
    struct cn_flight_chunk *chunks; // owned
    uint32_t count;
    uint32_t fresh; // chunks from here on were never sent
    uint32_t done;
    uint32_t in_flight;
    uint32_t next_order;
    struct cn_flight_list sent, lost;
};

cn_err cn_flight_init(struct cn_flight *flight, uint32_t count);
void cn_flight_deinit(struct cn_flight *flight);

// All chunks are unsent again.
void cn_flight_restart(struct cn_flight *flight);

// The chunk to send next, or CN_FLIGHT_NONE.
uint32_t cn_flight_next(struct cn_flight *flight);

void cn_flight_sent(struct cn_flight *flight, uint32_t chunk, uint64_t now_us);

// The chunk arrived. Returns false when that was known.
bool cn_flight_arrived(struct cn_flight *flight, uint32_t chunk);

bool cn_flight_is_done(const struct cn_flight *flight, uint32_t chunk);

// The chunk has to be sent again: it was lost, or its receiver has lost it.
void cn_flight_lose(struct cn_flight *flight, uint32_t chunk);

// Nothing in flight will be answered: the session ended.
void cn_flight_lose_all(struct cn_flight *flight);

// Finds losses: the transmission before was answered, so older ones of chunks below horizon should
// have been. Spares those that may only be out of order.
void cn_flight_detect(struct cn_flight *flight, uint32_t before, uint32_t horizon,
                      const struct cn_rtt *rtt, struct cn_pacer *pacer, uint64_t now_us);

// After a whole time-out without an answer everything in flight counts as lost. Lowers *wake_us to
// the time when that would be.
void cn_flight_expire(struct cn_flight *flight, struct cn_rtt *rtt, struct cn_pacer *pacer,
                      uint64_t now_us, uint64_t *wake_us);

uint64_t cn_transfer_tag(const struct cn_transfer *transfer, uint8_t tries, uint32_t chunk);

// True when the tag belongs to this transfer; then the rest is set.
bool cn_transfer_read_tag(const struct cn_transfer *transfer, uint64_t tag, uint8_t *tries,
                          uint32_t *chunk);
