// path_mtu.h - finds by probing how large a datagram the path takes (RFC 8899).
//
// A probe is POST p with a body that makes its datagram exactly as large as the size to test. The
// answer is as large, so it shows that both directions take that size. A probe carries no data, and
// its loss does not count as congestion. At first messages fill 1232 bytes, the base (IPv6, RFC
// 8200, 5), while the largest size is tried. When the base is not answered, smaller sizes are
// tried. When a transfer stalls (a black hole), the search starts again. A message of each size has
// room for more chunks of 64 bytes, the aggregator's, than one of the size before. Threading: none.
#pragma once

#include "transport/coap/exchange.h"
#include "transport/coap/retry.h"

#define CN_PATH_MTU_SIZES 7

struct cn_path_mtu {
    struct cn_exchange *exchange;
    const struct cn_rtt *rtt;
    uint8_t kind; // first byte of the probes' tags
    // Sizes are indices of the table of sizes, smallest first.
    int best;    // largest size that was answered; -1: none
    int worst;   // smallest size that was not answered; CN_PATH_MTU_SIZES: none
    int assumed; // size that messages may fill now
    int probed;  // size of the probe under way; -1: none
    // Number of the last probe, and the number of probes of this size.
    uint32_t number, tries;
    uint64_t due_us; // time of the next probe, or time-out of the probe under way
    bool stopped;    // the aggregator does not support probes
};

// Starts a search. Borrows exchange and rtt.
void cn_path_mtu_init(struct cn_path_mtu *search, struct cn_exchange *exchange,
                      const struct cn_rtt *rtt, uint8_t kind);

// Starts the search again in a new session, whose path may be another one.
void cn_path_mtu_restart(struct cn_path_mtu *search);

// Starts the search again, because messages of the size that was found seem not to arrive any more.
// Does nothing during a search.
void cn_path_mtu_doubt(struct cn_path_mtu *search);

// Sends a probe if one is due; lowers *wake_us to the time of the next step.
void cn_path_mtu_step(struct cn_path_mtu *search, uint64_t now_us, uint64_t *wake_us);

// Takes a reply. Returns false when it does not answer a probe.
bool cn_path_mtu_reply(struct cn_path_mtu *search, const struct cn_exchange_reply *reply,
                       uint64_t now_us);

// Returns the largest body of a message now, in bytes, in either direction.
uint32_t cn_path_mtu_body(const struct cn_path_mtu *search);
