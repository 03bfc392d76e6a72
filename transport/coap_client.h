// coap_client.h - the exchange over CoAP and DTLS 1.2 with a pre-shared key (RFC 7252, RFC 6347).
//
// Requests are non-confirmable messages: whoever sends them repeats them, under a new message ID
// and tag. The addresses are tried in order, names are looked up anew for each attempt and in a
// thread.
#pragma once

#include "transport/exchange.h"

struct cn_coap_client_config {
    const char *board;            // the identity; borrowed for the call
    uint8_t key[CN_KEY_SIZE];     // of the DTLS session: cn_security_dtls_key
    const char *const *addresses; // "host:port"; borrowed for the call
    uint32_t address_count;       // 1 to CN_LINK_ADDRESSES
    uint32_t handshake_ms;        // an attempt that takes longer has failed; 0: 10 s
    uint32_t silence_ms;          // unanswered for so long: connect anew; 0: 5 s
    uint32_t retry_max_ms;        // longest pause between attempts; 0: 60 s, refused 10 min
};

cn_err cn_coap_client_open(const struct cn_coap_client_config *config,
                           struct cn_exchange **exchange);
