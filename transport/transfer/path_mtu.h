// path_mtu.h - how large a datagram the path takes, by probing (RFC 8899).
//
// A probe is POST p with a body that makes its datagram as large as the size in question, answered
// by as large a one: so both ways are known to take it. It carries nothing else, and its loss is
// not taken for congestion. A base of 1232 bytes (IPv6, RFC 8200, 5) is taken for granted at first,
// then the largest size is tried. A search in the other direction, below the base, begins when the
// base is not answered; a transfer that stands still (a black hole) begins all anew. The sizes
// differ by whole chunks. Threading: none.
#pragma once

#include "transport/coap/exchange.h"
#include "transport/coap/retry.h"

#define CN_PATH_MTU_SIZES 7

struct cn_path_mtu {
    struct cn_exchange *exchange;
    const struct cn_rtt *rtt;
    uint8_t kind; // first byte of its tags
    int best;     // the largest size that was answered, -1 for none,
    int worst;    // the smallest that was not, CN_PATH_MTU_SIZES for none
    int assumed;  // what messages may fill meanwhile
    int probed;   // under way; -1: none
    uint32_t number, tries;
    uint64_t due_us; // of the next probe or the end of this one
    bool stopped;    // the aggregator does not answer probes
};

// exchange and rtt are borrowed.
void cn_path_mtu_init(struct cn_path_mtu *search, struct cn_exchange *exchange,
                      const struct cn_rtt *rtt, uint8_t kind);

// A new session: the path may be another.
void cn_path_mtu_restart(struct cn_path_mtu *search);

// Messages of the size that was found do not arrive any more, it seems.
void cn_path_mtu_doubt(struct cn_path_mtu *search);

// Sends what is due; lowers *wake_us to when there is more to do.
void cn_path_mtu_step(struct cn_path_mtu *search, uint64_t now_us, uint64_t *wake_us);

// Takes the answer to a probe.
bool cn_path_mtu_reply(struct cn_path_mtu *search, const struct cn_exchange_reply *reply,
                       uint64_t now_us);

// Bytes of a body that a message may have now, either way.
uint32_t cn_path_mtu_body(const struct cn_path_mtu *search);
