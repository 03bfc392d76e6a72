// coap_client.h - the exchange over CoAP with a pre-shared key: over UDP and DTLS 1.2 (RFC 7252,
// RFC 6347) or over TCP and TLS 1.2 (RFC 8323).
//
// Requests are non-confirmable messages. The caller repeats an unanswered request, with a new tag;
// each repetition gets a new message ID. The client tries the configured addresses in order. Of a
// host name it tries all IPv6 and IPv4 addresses. A name is looked up again each time that its turn
// comes, on a thread of its own.
#pragma once

#include "runtime/port/link.h"
#include "transport/coap/exchange.h"

struct cn_coap_client_config {
    const char *board;            // the PSK identity; borrowed for the call
    uint8_t key[CN_KEY_SIZE];     // the pre-shared key, made by cn_security_dtls_key
    const char *const *addresses; // "host:port"; borrowed for the call
    uint32_t address_count;       // 1 to CN_LINK_ADDRESSES
    uint32_t handshake_ms;        // limit of a connection attempt; 0: 10 s
    uint32_t silence_ms;          // reconnects after this time without answers; 0: 5 s, TCP 10 s
    // CN_LINK_AUTO tries TCP when nothing answers over UDP at any address, and keeps it while it
    // works.
    enum cn_link_transport transport;
    uint32_t retry_max_ms; // longest pause between attempts; 0: 60 s, or 10 min when refused
};

// Creates the exchange; its step makes the first connection. Returns CN_EINVAL for an invalid
// board name or address, and CN_ENOMEM.
cn_err cn_coap_client_open(const struct cn_coap_client_config *config,
                           struct cn_exchange **exchange);
