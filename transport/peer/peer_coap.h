// peer_coap.h - the peer link over CoAP and DTLS 1.2, at the UDP port of a member's address.
//
// Each member asks over the session that it made and answers on those that were made to it; a
// message is a POST to g/NAME (GROUP.md). The session's key is derived from the pair's, so a member
// that another one does not know, or knows by another key, is not heard.
#pragma once

#include "runtime/port/peer_link.h"

// listen is "host:port". members is borrowed until close.
cn_err cn_peer_coap_open(const char *listen, const struct cn_member *members, uint32_t count,
                         uint32_t self, struct cn_peer_link **link);
