// coap_client.h - the exchange over CoAP with a pre-shared key: over UDP and DTLS 1.2 (RFC 7252,
// RFC 6347) or over TCP and TLS 1.2 (RFC 8323).
//
// Requests are non-confirmable messages: whoever sends them repeats them, under a new message ID
// and tag. The addresses are tried in order, of a name all that it stands for, IPv6 and IPv4. Names
// are looked up anew each time and in a thread.
#pragma once

#include "runtime/port/link.h"
#include "transport/coap/exchange.h"

struct cn_coap_client_config {
    const char *board;            // the identity; borrowed for the call
    uint8_t key[CN_KEY_SIZE];     // of the DTLS session: cn_security_dtls_key
    const char *const *addresses; // "host:port"; borrowed for the call
    uint32_t address_count;       // 1 to CN_LINK_ADDRESSES
    uint32_t handshake_ms;        // an attempt that takes longer has failed; 0: 10 s
    uint32_t silence_ms;          // unanswered for so long: connect anew; 0: 5 s, over TCP 10 s
    // With AUTO, TCP is tried when UDP is not answered at any address, and stays while it works.
    enum cn_link_transport transport;
    uint32_t retry_max_ms; // longest pause between attempts; 0: 60 s, refused 10 min
};

cn_err cn_coap_client_open(const struct cn_coap_client_config *config,
                           struct cn_exchange **exchange);
