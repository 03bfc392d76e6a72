// coap_common.h - what the CoAP server and the CoAP client share; only coap_*.c include it.
#pragma once

#include <coap3/coap.h>

#include "transport/address.h"

// The largest UDP payload: fits IPv6's minimum MTU of 1280 bytes (RFC 8200, 5), so no router on the
// way ever fragments or drops a chunk for its size.
#define CN_COAP_MTU 1232

// Of that, what DTLS 1.2 with a connection ID and its padding to 16 bytes, the CoAP header, the
// token and the options of a chunk leave for a body.
#define CN_COAP_PARCEL (CN_COAP_MTU - 144)

// Initialises libcoap once for the process and sends its messages to cn_log.
void cn_coap_start(void);

void cn_coap_address(const struct cn_address *from, coap_address_t *to);

// Handles the datagrams that are there, one after another, but no more than a burst.
void cn_coap_drain(coap_context_t *coap);

// Bytes of the CoAP message: header, token, options, payload.
size_t cn_coap_message_size(const coap_pdu_t *pdu);
