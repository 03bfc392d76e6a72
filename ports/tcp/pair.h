// pair.h - one authenticated, encrypted stream between two members of a group.
//
// TCP with TLS 1.3 (RFC 8446), external PSK with (EC)DHE, AES-128-GCM or ChaCha20-Poly1305, and
// nothing else. The key is the pair's own; the PSK identity is "FROM>TO", so that a stolen key is
// one pair and a connection cannot be reflected. Inside the channel both sides say hello first:
// protocol, purpose, epoch and both names. PROTOCOL.md has the layout.
//
// Nothing blocks: calls return CN_EAGAIN and the caller polls the descriptor for cn_pair_events.
// The exception is cn_pair_connect to a host name, which asks the resolver; addresses avoid that.
// SIGPIPE is never raised.
//
// Errors: CN_EAUTH for a wrong key or name, CN_ESTALE for another epoch, CN_EPEER when the
// connection is lost, CN_ETIMEOUT when the handshake takes too long, CN_ENOTSUP for another
// protocol version. After an error a pair can only be closed. Threading: one thread per pair;
// different threads may use different pairs.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/port/collective.h"

#define CN_PAIR_PROTOCOL 3 // changes with the hello or with what flows after it

enum cn_pair_purpose {
    CN_PAIR_DATA = 1,
};

// Shared by the pairs of one collective or link; outlives them.
struct cn_pair_config {
    const struct cn_member *members;
    uint32_t count, self;
    const char *listen; // NULL: at this member's address
    enum cn_pair_purpose purpose;
    uint64_t epoch;        // both sides must agree
    uint32_t handshake_ms; // from connect or accept to the end of the hellos
    uint32_t silence_ms;   // the kernel gives up on an unacknowledged peer
    bool aes;              // as cn_pair_has_aes: AES-128-GCM is listed, before ChaCha20-Poly1305
};

struct cn_pair;

// This processor has instructions for AES and for carry-less products. Not with CAIRN_CPU_PLAIN in
// the environment, so that tests reach the other cipher.
bool cn_pair_has_aes(void);

// Listens at "host:port"; a host that is none of this machine's addresses means all of
// them. Close the descriptor with close(2).
cn_err cn_pair_listen(const char *address, int *descriptor);

// Begins to connect to members[member].
cn_err cn_pair_connect(const struct cn_pair_config *config, uint32_t member, struct cn_pair **pair);

// Takes one waiting connection; CN_EAGAIN when there is none. Who it is shows after the handshake.
cn_err cn_pair_accept(const struct cn_pair_config *config, int listener, struct cn_pair **pair);

// Drives connection, TLS and hellos. CN_OK when data may flow.
cn_err cn_pair_handshake(struct cn_pair *pair);

// The TCP connection came about: somebody listens, or did.
bool cn_pair_reached(const struct cn_pair *pair);

// Index of the other side; for an accepted pair only after the handshake.
uint32_t cn_pair_member(const struct cn_pair *pair);

// What the other side's hello said; 0 before it arrived. After CN_ESTALE it tells who is behind.
uint64_t cn_pair_peer_epoch(const struct cn_pair *pair);

// The suite that both sides agreed on, as "TLS1-3-AES-128-GCM-SHA256"; after the handshake.
const char *cn_pair_cipher(const struct cn_pair *pair);

int cn_pair_descriptor(const struct cn_pair *pair);

// POLLIN or POLLOUT: what the last CN_EAGAIN waits for.
short cn_pair_events(const struct cn_pair *pair);

// Sends a part of size bytes, at least one. After CN_EAGAIN call again with data that begins with
// the same bytes and is at least as long.
cn_err cn_pair_send(struct cn_pair *pair, const void *data, size_t size, size_t *sent);

// Reads up to size bytes, at least one. Read until CN_EAGAIN before polling.
cn_err cn_pair_receive(struct cn_pair *pair, void *data, size_t size, size_t *received);

void cn_pair_close(struct cn_pair *pair);
