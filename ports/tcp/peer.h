// peer.h - the peer link over encrypted TCP pairs, at the port after the ring's.
//
// Each member sends on the connection that it made and receives on those it accepted. The newest
// connection of a member counts, so that a restarted one is heard at once.
#pragma once

#include "runtime/port/peer_link.h"

// listen is "host:port" of the ring; the link listens at port + 1. members is borrowed until close.
cn_err cn_peer_tcp_open(const char *listen, const struct cn_member *members, uint32_t count,
                        uint32_t self, struct cn_peer_link **link);
