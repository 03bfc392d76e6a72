// coap_server.h - the aggregator's side of CoAP: routes, sessions, observers.
//
// RFC 7252 over DTLS 1.2 and RFC 8323 over TLS 1.2, both with pre-shared keys and at the same port;
// RFC 7641 for observation. A handler decodes, decides
// and answers; it never blocks. Only the coap_*.c files know libcoap.
//
// An unknown board and a wrong key fail the handshake in the same way, so that nobody learns which
// boards are enrolled. A board has one live session: a newer one, once it is proven by a request,
// ends the older.
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
    const char *path;    // what follows the route's prefix, without a leading '/'; "" for nothing
    const uint8_t *body; // borrowed
    size_t size;
    // The sender asked for no answer on success (No-Response 2, RFC 7967): one may be filled in and
    // is not sent then, or the handler saves the work with CN_COAP_SILENT. Errors are always sent.
    bool wants_reply;
    size_t reply_max;              // bytes of a body that the answer may have
    const struct cn_address *from; // where it came from; NULL without a network
};

struct cn_coap_reply {
    enum cn_coap_code code;         // the server sets 5.00 before the call
    uint8_t body[CN_COAP_BODY_MAX]; // CBOR or raw; for errors a short UTF-8 diagnostic (RFC
                                    // 7252, 5.5.2)
    size_t size;
    uint32_t max_age_s; // 0: no option. With 5.03 and 4.29: when to come back
};

typedef void cn_coap_handler(void *context, const struct cn_coap_request *request,
                             struct cn_coap_reply *reply);

// Matches a request whose path is prefix or begins with prefix + "/". First match wins.
struct cn_coap_route {
    enum cn_coap_method method;
    const char *prefix; // "r", "u"
    bool observable;
    cn_coap_handler *handle;
    bool bulk; // bytes of updates and models: counted as such, not as a request
};

// Sets reply to an error with a diagnostic.
void cn_coap_reply_error(struct cn_coap_reply *reply, enum cn_coap_code code, const char *format,
                         ...) __attribute__((format(printf, 3, 4)));

struct cn_coap_server_config {
    const char *const *listen; // "host:port"; "0.0.0.0:5684"
    uint32_t listen_count;
    bool only_udp;                      // the TCP port of these addresses is for others
    const struct cn_coap_route *routes; // borrowed, as context is
    size_t route_count;
    void *context;
    // Finds the transport key of a board (cn_security_dtls_key). CN_EAUTH for one that is not
    // enrolled or was revoked.
    cn_err (*find_key)(void *context, const char *board, uint8_t key[CN_KEY_SIZE]);
    uint32_t handshakes_max; // half-open sessions, over UDP and over TCP each
    uint32_t sessions_max;   // one more board is told to come back
    // Of each board, with a burst of a few seconds; more is answered with 4.29, or not when no
    // answer is wanted. 0: no limit.
    uint32_t requests_per_s; // but for bulk
    uint64_t bulk_per_s;     // bytes, either way
};

struct cn_coap_server_stats {
    struct cn_link_bytes in, out;
    uint32_t sessions;
};

struct cn_coap_server;

// CN_EEXIST when an address is in use; the log names it.
cn_err cn_coap_server_open(const struct cn_coap_server_config *config,
                           struct cn_coap_server **server);
void cn_coap_server_close(struct cn_coap_server *server);

// Readable when step has work.
int cn_coap_server_descriptor(const struct cn_coap_server *server);

// Waits up to timeout_ms for traffic and handles what is due.
cn_err cn_coap_server_step(struct cn_coap_server *server, uint32_t timeout_ms);

// Tells the observers of a route that its content changed.
void cn_coap_server_notify(struct cn_coap_server *server, const char *prefix);

// Ends all live sessions of a board: none of its requests is handled any more, the peer is told in
// the next step. Callable from a handler, as notify is.
void cn_coap_server_drop(struct cn_coap_server *server, const char *board);

void cn_coap_server_stats(const struct cn_coap_server *server, struct cn_coap_server_stats *stats);
