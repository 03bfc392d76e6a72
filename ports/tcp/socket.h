// socket.h - the TCP below a pair: addresses, listening, connecting and accepting.
//
// All descriptors are non-blocking and close on exec. The caller owns them and closes them with
// close(2). No call waits, except for the resolver when a host is not a numeric address. Threading:
// any.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

// Listens at "host:port" or "[ipv6]:port". A host that is no address of this machine means all its
// addresses. CN_EINVAL for a malformed address, CN_EEXIST when the port is taken.
cn_err cn_socket_listen(const char *address, int *descriptor);

// Makes the segments of both directions small enough for packets of 1200 bytes, on connections that
// the socket makes or accepts afterwards.
void cn_socket_use_small_segments(int descriptor);

// Returns whether larger segments are sent again and again while nothing is acknowledged. That
// shows a path that silently loses large packets (RFC 2923, 2.1).
bool cn_socket_loses_large(int descriptor);

// Begins to connect; cn_socket_connected tells when it is done. The kernel drops a peer that
// acknowledges nothing for silence_ms. CN_EINVAL for a malformed address, CN_ENOTFOUND when the
// host has no address, CN_EPEER when it cannot be reached. small: with small segments.
cn_err cn_socket_connect(const char *address, uint32_t silence_ms, bool small, int *descriptor);

// Returns CN_OK once connected, CN_EAGAIN while connecting, CN_EPEER when connecting failed.
cn_err cn_socket_connected(int descriptor);

// Writes the numeric address of the other end, without its port; "?" when there is none.
#define CN_SOCKET_TEXT 64
void cn_socket_peer(int descriptor, char text[CN_SOCKET_TEXT]);

// Sets source to the part of the other end's address that its host cannot choose: an IPv4 address,
// or the first 64 bits of an IPv6 one; zeros when there is none.
void cn_socket_source(int descriptor, uint8_t source[16]);

// Accepts one waiting connection. CN_EAGAIN when there is none, CN_ENOMEM when descriptors or
// memory are short. silence_ms is as for cn_socket_connect.
cn_err cn_socket_accept(int listener, uint32_t silence_ms, int *descriptor);
