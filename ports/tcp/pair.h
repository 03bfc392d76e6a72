// pair.h - one authenticated, encrypted stream between two members of a group.
//
// TCP with TLS 1.3 (RFC 8446): external PSK with (EC)DHE and AES-128-GCM or ChaCha20-Poly1305,
// nothing else. Each pair of members has its own key, so a stolen key opens one pair only. The PSK
// identity is "FROM>TO", so a connection cannot be reflected. Inside the channel both sides first
// send a hello with protocol, purpose, epoch and both names. PROTOCOL.md has the layout.
//
// No call blocks: calls return CN_EAGAIN, and the caller polls the descriptor for cn_pair_events.
// The exception is cn_pair_connect to a host name, which asks the resolver; numeric addresses avoid
// that. SIGPIPE is never raised.
//
// Errors: CN_EAUTH for a wrong key or name, CN_ESTALE for another epoch, CN_EPEER when the
// connection is lost, CN_ETIMEOUT when the handshake takes too long, CN_ENOTSUP for another
// protocol version, CN_EFORMAT for a malformed hello, CN_ENOMEM. After an error a pair can only
// be closed. Threading: one thread per pair; different threads may use different pairs.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/port/collective.h"

#define CN_PAIR_PROTOCOL 3 // changes when the hello or what follows it changes

enum cn_pair_purpose {
    CN_PAIR_DATA = 1,
};

// Settings that the pairs of one collective share. Must outlive the pairs.
struct cn_pair_config {
    const struct cn_member *members; // borrowed
    uint32_t count, self;            // number of members; index of this board
    const char *listen;              // "host:port" to listen at; NULL: this member's address
    enum cn_pair_purpose purpose;
    uint64_t epoch;              // both sides must agree
    uint32_t handshake_ms;       // limit from connect or accept to this side's hello
    uint32_t silence_ms;         // after which the kernel drops a peer that acknowledges nothing
    struct cn_log_quotas *lines; // limits the log lines about each member; NULL: no limit
    uint32_t lossy_paths;        // bit per member to whom segments are small
    bool aes;                    // whether to offer AES-128-GCM, before ChaCha20-Poly1305
};

struct cn_pair;

// Returns whether this processor has instructions for AES and for carry-less products. With
// CAIRN_CPU_PLAIN in the environment it returns false, so that tests reach the other cipher.
bool cn_pair_has_aes(void);

// Listens at "host:port". A host that is no address of this machine means all its addresses. The
// caller closes the descriptor with close(2). Errors are those of cn_socket_listen.
cn_err cn_pair_listen(const char *address, int *descriptor);

// Begins to connect to members[member]; drive it with cn_pair_handshake. CN_ENOTFOUND when the host
// has no address, CN_EAUTH when there is no key for the member.
cn_err cn_pair_connect(const struct cn_pair_config *config, uint32_t member, struct cn_pair **pair);

// Accepts one waiting connection; CN_EAGAIN when there is none. The handshake shows which member it
// is.
cn_err cn_pair_accept(const struct cn_pair_config *config, int listener, struct cn_pair **pair);

// Advances connection, TLS and hellos. Returns CN_OK when data may flow, CN_EAGAIN to be called
// again when the descriptor is ready. The side that connects sends its hello first and then waits
// for the other's without a limit of its own: the other side may count it as connected already.
cn_err cn_pair_handshake(struct cn_pair *pair);

// Returns whether TCP has connected a pair of cn_pair_connect, so the other side listens or did so.
bool cn_pair_reached(const struct cn_pair *pair);

// Returns whether the other side has proved that it has the key, also if the handshake failed
// later.
bool cn_pair_is_proven(const struct cn_pair *pair);

// Returns the member index of the other side. For an accepted pair anybody may have named it until
// the other side is proven.
uint32_t cn_pair_member(const struct cn_pair *pair);

// Returns the epoch in the other side's hello; 0 before it arrived. After CN_ESTALE it tells which
// side is behind.
uint64_t cn_pair_peer_epoch(const struct cn_pair *pair);

// Returns the cipher suite in use, such as "TLS1-3-AES-128-GCM-SHA256". Call after the handshake;
// the text is static.
const char *cn_pair_cipher(const struct cn_pair *pair);

// Returns the socket, to poll. The pair keeps it.
int cn_pair_descriptor(const struct cn_pair *pair);

// Returns whether large packets to the other side seem to be lost (cn_socket_loses_large).
bool cn_pair_loses_large(const struct cn_pair *pair);

// Returns POLLIN or POLLOUT: what the last CN_EAGAIN waits for.
short cn_pair_events(const struct cn_pair *pair);

// Sends at least one of size bytes and sets *sent. After CN_EAGAIN call again with data that begins
// with the same bytes and is at least as long.
cn_err cn_pair_send(struct cn_pair *pair, const void *data, size_t size, size_t *sent);

// Reads at least one and up to size bytes and sets *received. Read until CN_EAGAIN before polling:
// TLS may hold data that the socket no longer has.
cn_err cn_pair_receive(struct cn_pair *pair, void *data, size_t size, size_t *received);

// How a connection ended.
enum cn_pair_end {
    CN_PAIR_OPEN,    // the connection has not ended
    CN_PAIR_GAVE_UP, // the other side gave notice: it ends because of another failure
    CN_PAIR_CUT,     // no notice: the other side's process, board or link has failed
};

// Tells the other side that this one gives up, after a handshake that succeeded. CN_EAGAIN: call
// again when the socket can be written. Then only cn_pair_drain and cn_pair_close may follow.
cn_err cn_pair_give_up(struct cn_pair *pair);

// Reads and drops what has arrived, also after an error of another call, and returns how the
// connection ended.
enum cn_pair_end cn_pair_drain(struct cn_pair *pair);

// Closes the connection and frees the pair. NULL is allowed.
void cn_pair_close(struct cn_pair *pair);
