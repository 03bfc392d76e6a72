// loopback.h - the exchange without a network: requests go to a route table in this process.
//
// It loses, repeats and reorders messages at rates of a test's choice. The same seed and order of
// calls give the same result. Threading: one thread, in which the routes run, too.
#pragma once

#include "transport/coap/exchange.h"

struct cn_loopback_config {
    const char *board; // treated as authenticated; borrowed, as are routes and context
    const struct cn_coap_route *routes;
    size_t route_count;
    void *context;
    uint64_t seed;
    uint32_t lost, repeated, reordered; // of 1000 messages, in each direction
    uint32_t body_max;                  // bytes of a body; 0: 1152
    uint32_t mtu;                       // bodies with more bytes are lost; 0: no limit
};

cn_err cn_loopback_open(const struct cn_loopback_config *config, struct cn_exchange **exchange);

// Notifies the board's observer, like cn_coap_server_notify.
void cn_loopback_notify(struct cn_exchange *exchange, const char *prefix);

// Sets what the exchange reports about itself from now on. UP after any other state is a new
// session.
void cn_loopback_set_state(struct cn_exchange *exchange, enum cn_exchange_state state,
                           const char *text);

// Makes the path lose larger bodies from now on, as mtu in the config does.
void cn_loopback_set_mtu(struct cn_exchange *exchange, uint32_t mtu);
