// peer_coap.h - the peer link over CoAP and DTLS 1.2, at the UDP port of a member's address.
//
// Each member sends requests over the sessions that it opened and answers on those opened to it. A
// message is a POST to g/NAME (GROUP.md). A session's key is derived from the pair's key. So a
// member hears nothing from a board that it does not know or that has another key. Threading: one
// thread. Nothing blocks.
#pragma once

#include "runtime/port/peer_link.h"

// Opens the link of the member with the index self. listen is "host:port". members is borrowed
// until close. Returns the errors of cn_coap_server_open and of cn_coap_client_open.
cn_err cn_peer_coap_open(const char *listen, const struct cn_member *members, uint32_t count,
                         uint32_t self, struct cn_peer_link **link);
