// socket.h - the TCP below a pair: addresses, listening, connecting, and writing without SIGPIPE.
//
// All descriptors are non-blocking and close on exec.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

// Listens at "host:port" or "[ipv6]:port". A host that is none of
// this machine's addresses means all of them. CN_EINVAL for a malformed address, CN_EEXIST when the
// port is taken.
cn_err cn_socket_listen(const char *address, int *descriptor);

// Begins to connect. CN_ENOTFOUND when the host has no address, CN_EPEER when it cannot be reached.
// The kernel gives up on a peer that acknowledges nothing for silence_ms.
cn_err cn_socket_connect(const char *address, uint32_t silence_ms, int *descriptor);

// CN_EAGAIN while connecting, CN_EPEER when it failed.
cn_err cn_socket_connected(int descriptor);

// The numeric address of the other end, without its port; "?" when there is none.
#define CN_SOCKET_TEXT 64
void cn_socket_peer(int descriptor, char text[CN_SOCKET_TEXT]);

// One waiting connection. CN_EAGAIN when there is none.
cn_err cn_socket_accept(int listener, uint32_t silence_ms, int *descriptor);
