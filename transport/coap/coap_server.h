// coap_server.h - the aggregator's side of CoAP: routes, sessions, observers.
//
// The server speaks CoAP over DTLS 1.2 (RFC 7252) and over TLS 1.2 (RFC 8323), at the same port and
// with pre-shared keys. Observation follows RFC 7641. A handler decodes a request, decides and
// answers; it never blocks. Only the coap_*.c files know libcoap.
//
// An unknown board and a wrong key fail the handshake in the same way, so that nobody learns which
// boards are enrolled. A board has one live session: the first request of a newer session ends the
// older one.
// Threading: one thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"
#include "runtime/base/name.h"
#include "runtime/port/crypto.h"
#include "runtime/port/link.h"
#include "transport/coap/coap.h"

struct cn_address;

struct cn_coap_request {
    enum cn_coap_method method;
    const char *board;   // authenticated PSK identity of the session
    const char *path;    // rest of the path after the route's prefix, without a leading '/'
    const uint8_t *body; // borrowed for the call of the handler
    size_t size;         // bytes of the body
    // False when the sender wants no answer on success (No-Response 2, RFC 7967). A success reply
    // is then not sent; a handler may set CN_COAP_SILENT instead of filling one in. Errors are
    // always sent.
    bool wants_reply;
    // Nothing arrived: the request of an observer is answered again, as a notification. It says
    // nothing about whether the observer still lives.
    bool notifies;
    size_t reply_max;              // largest body of the answer, in bytes
    const struct cn_address *from; // address of the sender; NULL without a network
};

struct cn_coap_reply {
    enum cn_coap_code code; // the server sets 5.00 before it calls the handler
    // CBOR or raw bytes; for an error a short UTF-8 diagnostic (RFC 7252, 5.5.2).
    uint8_t body[CN_COAP_BODY_MAX];
    size_t size;        // bytes of the body
    uint32_t max_age_s; // Max-Age option, 0: none. With 5.03 and 4.29: the time until a retry
};

typedef void cn_coap_handler(void *context, const struct cn_coap_request *request,
                             struct cn_coap_reply *reply);

// A route matches a request whose path is prefix or begins with prefix + "/". The first route that
// matches gets the request.
struct cn_coap_route {
    enum cn_coap_method method;
    const char *prefix; // "r", "u"
    bool observable;
    cn_coap_handler *handle;
    // The route carries updates or models: bulk_per_s limits it rather than requests_per_s.
    bool bulk;
};

// Sets reply to an error with a diagnostic, and without a Max-Age.
void cn_coap_reply_error(struct cn_coap_reply *reply, enum cn_coap_code code, const char *format,
                         ...) __attribute__((format(printf, 3, 4)));

struct cn_coap_server_config {
    const char *const *listen; // "host:port", for example "0.0.0.0:5684"; borrowed for the call
    uint32_t listen_count;
    bool only_udp;                      // do not listen over TCP: its port belongs to others
    const struct cn_coap_route *routes; // borrowed until close, as context is
    size_t route_count;
    void *context;
    // Finds the transport key of a board (cn_security_dtls_key). Returns CN_EAUTH for a board that
    // is not enrolled or was revoked.
    cn_err (*find_key)(void *context, const char *board, uint8_t key[CN_KEY_SIZE]);
    uint32_t handshakes_max; // most half-open sessions over UDP; the same number again over TCP
    uint32_t sessions_max;   // largest number of boards; others get 5.03 and a Max-Age
    // Limits of each board, with a burst of a few seconds. A request beyond them gets 4.29, or no
    // answer if it wants none. 0: no limit.
    uint32_t requests_per_s; // requests to routes that are not bulk
    uint64_t bulk_per_s;     // bytes of bulk routes, both directions together
};

// What became of a handshake.
enum cn_coap_handshake {
    CN_COAP_HANDSHAKE_OK,         // the board made a request
    CN_COAP_HANDSHAKE_UNKNOWN,    // no board of this name is enrolled, or it was revoked
    CN_COAP_HANDSHAKE_FAILED,     // another key, a damaged message, or no request came after it
    CN_COAP_HANDSHAKE_UNFINISHED, // it was begun and named no board
    CN_COAP_HANDSHAKE_FULL, // all sessions were taken; it also counts as OK when a later request is
                            // served
    CN_COAP_HANDSHAKES,
};

#define CN_COAP_CLASSES 6 // of codes: 2.xx are answers, 4.xx and 5.xx errors; others are empty

struct cn_coap_server_stats {
    struct cn_link_bytes in, out; // since open
    uint32_t sessions;            // live sessions of boards
    // Since open. A handshake that is not OK or FULL is counted when its session ends.
    uint64_t handshakes[CN_COAP_HANDSHAKES];
    uint64_t requests[CN_COAP_CLASSES]; // since open, by the class of the answer's code
};

struct cn_coap_server;

// Opens the server and listens at all addresses. Returns CN_EEXIST when an address is in use; the
// log names it.
cn_err cn_coap_server_open(const struct cn_coap_server_config *config,
                           struct cn_coap_server **server);
void cn_coap_server_close(struct cn_coap_server *server);

// Returns the descriptor that is readable when step has work. The server owns it.
int cn_coap_server_descriptor(const struct cn_coap_server *server);

// Waits up to timeout_ms for traffic, handles it and runs due timers. Returns CN_EIO when waiting
// fails.
cn_err cn_coap_server_step(struct cn_coap_server *server, uint32_t timeout_ms);

// Sends the current content of a route to its observers, because it changed.
void cn_coap_server_notify(struct cn_coap_server *server, const char *prefix);

// Ends all live sessions of a board: their requests are not handled any more, and the next step
// closes them. May be called from a handler, as may notify.
void cn_coap_server_drop(struct cn_coap_server *server, const char *board);

// Returns the bytes of messages from a board and to it since open: zeros if it made no request.
void cn_coap_server_board_bytes(const struct cn_coap_server *server, const char *board,
                                struct cn_link_bytes *in, struct cn_link_bytes *out);

void cn_coap_server_stats(const struct cn_coap_server *server, struct cn_coap_server_stats *stats);
