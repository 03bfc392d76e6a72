// coap_common.h - the code that the CoAP server and the CoAP client share.
//
// Only the coap_*.c files and coap_sessions.h include it, as it includes libcoap's header.
#pragma once

#include <coap3/coap.h>

#include "runtime/port/link.h"
#include "transport/coap/address.h"
#include "transport/coap/coap.h"

// Initialises libcoap once for the process and sends its messages to cn_log.
void cn_coap_start(void);

// Raises the soft limit of open files (usually 1024) as far as allowed, to twice the number of
// sessions: each session over TCP needs a file descriptor.
void cn_coap_allow_files(uint32_t sessions);

// Converts an address to libcoap's form; the second function converts it back.
void cn_coap_address(const struct cn_address *from, coap_address_t *to);
void cn_coap_address_back(const coap_address_t *from, struct cn_address *to);

// Waits up to timeout_ms for traffic, then runs due timers and handles a bounded number of waiting
// datagrams. Log lines written during the call name `where`, an address.
cn_err cn_coap_process(coap_context_t *coap, const char *where, uint32_t timeout_ms);

// Returns the bytes of the CoAP message: header, token, options and payload.
size_t cn_coap_message_size(const coap_pdu_t *pdu);

// Adds a message of this session to *bytes. to_server is its direction: only records to the server
// carry a connection ID.
void cn_coap_count(const coap_session_t *session, const coap_pdu_t *pdu, bool to_server,
                   struct cn_link_bytes *bytes);
