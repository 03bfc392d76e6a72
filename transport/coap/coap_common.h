// coap_common.h - what the CoAP server and the CoAP client share; only coap_*.c include it.
#pragma once

#include <coap3/coap.h>

#include "runtime/port/link.h"
#include "transport/coap/address.h"
#include "transport/coap/coap.h"

// UDP payloads, at most: fits Ethernet's 1500 with IPv4 and IPv6, PPPoE and one tunnel; more would
// not hold one chunk more. path_mtu.h finds out what a path takes.
#define CN_COAP_MTU 1424

// Of that, what DTLS 1.2 with a connection ID and its padding to 16 bytes, the CoAP header, the
// token and the options of a chunk leave for a body.
#define CN_COAP_AROUND 144
_Static_assert(CN_COAP_DATAGRAM_MAX == CN_COAP_MTU - CN_COAP_AROUND, "the largest body fits");

// Initialises libcoap once for the process and sends its messages to cn_log.
void cn_coap_start(void);

// Each session over TCP is a file; the usual limit of 1024 is a soft one.
void cn_coap_allow_files(uint32_t sessions);

void cn_coap_address(const struct cn_address *from, coap_address_t *to);
void cn_coap_address_back(const coap_address_t *from, struct cn_address *to);

// Waits up to timeout_ms, then does what is due and handles the datagrams that are there, but no
// more than a burst. where is the address that lines of the log name.
cn_err cn_coap_process(coap_context_t *coap, const char *where, uint32_t timeout_ms);

// Bytes of the CoAP message: header, token, options, payload.
size_t cn_coap_message_size(const coap_pdu_t *pdu);

// Adds a message that went through the session to what was counted. to_server: only records in
// this direction carry a connection ID.
void cn_coap_count(const coap_session_t *session, const coap_pdu_t *pdu, bool to_server,
                   struct cn_link_bytes *bytes);
