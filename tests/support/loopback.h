// loopback.h - the exchange without a network: requests go to a route table in this process.
//
// Loses, repeats and reorders messages at rates of a test's choice, always in the same way for the
// same seed and the same order of calls. Threading: one thread, the routes' as well.
#pragma once

#include "transport/coap/exchange.h"

struct cn_loopback_config {
    const char *board; // as if authenticated; borrowed, as routes and context are
    const struct cn_coap_route *routes;
    size_t route_count;
    void *context;
    uint64_t seed;
    uint32_t lost, repeated, reordered; // of 1000 messages, each way
    uint32_t body_max;                  // bytes of a body; 0: 1152, the most
    uint32_t mtu;                       // larger bodies are lost; 0: none
};

cn_err cn_loopback_open(const struct cn_loopback_config *config, struct cn_exchange **exchange);

// As cn_coap_server_notify, for this board.
void cn_loopback_notify(struct cn_exchange *exchange, const char *prefix);

// What the exchange tells about itself from now on. UP after anything else is a new session.
void cn_loopback_set_state(struct cn_exchange *exchange, enum cn_exchange_state state,
                           const char *text);

// As if the path took larger or smaller messages from now on.
void cn_loopback_set_mtu(struct cn_exchange *exchange, uint32_t mtu);
