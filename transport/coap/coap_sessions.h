// coap_sessions.h - which boards the CoAP server hears, over which sessions. A part of coap_server;
// only it includes this.
//
// Threading: that of the server.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/base/log_limit.h"
#include "runtime/base/name.h"
#include "transport/coap/bucket.h"
#include "transport/coap/coap_common.h"

#define CN_COAP_SESSION_BUCKETS 256
#define CN_COAP_ECHO_SIZE 8

// Every board that was ever heard; enrolment bounds their number.
struct cn_coap_board {
    struct cn_coap_board *next;
    char name[CN_NAME_SIZE];
    struct cn_bucket requests, bulk;
    struct cn_log_quota misfits; // lines about answers that did not fit
};

// A session over TCP from its connection on, any other from its first request on, to libcoap's end
// of it.
struct cn_coap_session {
    struct cn_coap_session *next;
    coap_session_t *coap;
    struct cn_coap_board *board; // NULL before the first request
    uint64_t since_ms;
    bool closing;
    // After its address changed (RFC 9146), until the board has shown that it gets what is sent
    // there by repeating the echo (RFC 9175, 2.3), no answer goes there that is much larger than
    // its request.
    coap_address_t proven, claimed;
    uint8_t echo[CN_COAP_ECHO_SIZE];
};

struct cn_coap_sessions {
    const struct cn_coap_server_config *config; // of the server: find_key and the limits
    struct cn_coap_session *first;              // newest first
    struct cn_coap_board *boards[CN_COAP_SESSION_BUCKETS];
    uint32_t count;   // sessions of boards
    uint32_t waiting; // sessions over TCP without a request
    bool closing;     // some session is
    uint8_t key[CN_KEY_SIZE];
    coap_bin_const_t key_view;
};

// config is borrowed until deinit. Fails as the system's random numbers do.
cn_err cn_coap_sessions_init(struct cn_coap_sessions *sessions,
                             const struct cn_coap_server_config *config);

// After libcoap's context was freed, which ends all sessions.
void cn_coap_sessions_deinit(struct cn_coap_sessions *sessions);

// libcoap's callback in a handshake: the key of an identity. An identity without a key gets a
// random one, so that its handshake goes on and fails exactly as with a wrong key.
const coap_bin_const_t *cn_coap_sessions_choose_key(coap_bin_const_t *identity,
                                                    coap_session_t *coap, void *sessions);

// A connection over TCP, before its first request.
void cn_coap_sessions_connected(struct cn_coap_sessions *sessions, coap_session_t *coap);

// libcoap has ended the session.
void cn_coap_sessions_forget(struct cn_coap_sessions *sessions, struct cn_coap_session *session);

// The session behind a request, or NULL when it must not be served. The newest session of a board
// ends the others. full: there is no room for one more board.
struct cn_coap_session *cn_coap_sessions_admit(struct cn_coap_sessions *sessions,
                                               coap_session_t *coap, bool *full);

// Whether the board is known to receive what is sent to where its request came from.
bool cn_coap_session_is_proven(struct cn_coap_session *session, const coap_pdu_t *pdu);

// Marks all sessions of a board; tidy ends them.
void cn_coap_sessions_drop(struct cn_coap_sessions *sessions, const char *board);

// Ends the sessions that were marked, and connections that asked for nothing in time. Not from a
// handler: libcoap may be in the middle of a request of such a session.
void cn_coap_sessions_tidy(struct cn_coap_sessions *sessions);
