// sim_exchange.h - the exchange over a simulated path: two link models, a route table, a clock.
//
// Nothing waits: the clock jumps to the next event. So minutes of a thin link pass in milliseconds,
// and always in the same way. Threading: one thread, in which the routes run, too.
#pragma once

#include "tests/support/link_model.h"
#include "transport/coap/exchange.h"

struct cn_sim_config {
    const char *board; // treated as authenticated; borrowed, as are routes and context
    const struct cn_coap_route *routes;
    size_t route_count;
    void *context;
    struct cn_link_shape up, down;
    uint32_t body_max; // bytes of a message's body
};

cn_err cn_sim_open(const struct cn_sim_config *config, struct cn_exchange **exchange);

uint64_t cn_sim_now_us(const struct cn_exchange *exchange);

// Moves the clock to wake_us or to the next arrival, whichever is earlier, and delivers what is
// due.
void cn_sim_advance(struct cn_exchange *exchange, uint64_t wake_us);

// Changes the path from now on. Datagrams on their way arrive as they would have.
void cn_sim_reshape(struct cn_exchange *exchange, const struct cn_link_shape *up,
                    const struct cn_link_shape *down);

// Sends a datagram of another flow into the path up now, before any that is sent later. Returns
// when it arrives at the other end, or 0 when it is lost.
uint64_t cn_sim_offer(struct cn_exchange *exchange, size_t size);

const struct cn_link_counts *cn_sim_counts(const struct cn_exchange *exchange, bool up);

// Returns the bytes that a message with this path adds to its body on the link: CoAP, DTLS 1.2 with
// an 8-byte connection ID, UDP and IPv4.
size_t cn_sim_overhead(const char *path);
