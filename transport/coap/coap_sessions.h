// coap_sessions.h - the boards of the CoAP server, their sessions and their limits. A part of
// coap_server, which alone includes it.
//
// Threading: the server's thread.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/base/log_limit.h"
#include "runtime/base/name.h"
#include "transport/coap/bucket.h"
#include "transport/coap/coap_common.h"
#include "transport/coap/coap_server.h"

#define CN_COAP_SESSION_BUCKETS 256
#define CN_COAP_ECHO_SIZE 8

// A board that has sent a request since the server started. Enrolment bounds their number.
struct cn_coap_board {
    struct cn_coap_board *next;
    char name[CN_NAME_SIZE];
    struct cn_bucket requests, bulk, notifications;
    struct cn_link_bytes in, out;  // messages since the server started
    struct cn_log_quota oversized; // limits log lines about answers too large for a message
};

// A session of a board. Over TCP it exists from the connection on, over UDP from the time
// when the handshake names the board, until libcoap ends it.
struct cn_coap_session {
    struct cn_coap_session *next;
    coap_session_t *coap;
    struct cn_coap_board *board; // NULL before the first request that is served
    char name[CN_NAME_SIZE];     // the identity that the handshake has shown; "" before its end
    uint64_t since_ms;           // time of creation
    bool finished;               // the handshake has finished
    bool closing;                // tidy ends the session
    bool waits;                  // over TCP, without a request so far: it is counted in waiting
    bool turned_away;            // all sessions were taken when its first request came
    // A session survives a new address of its board (RFC 9146). A new address gets no answer much
    // larger than its request, until the board has proven that it receives there. The board proves
    // that by repeating echo (RFC 9175, 2.3). proven is the address proven last, claimed the one
    // that echo belongs to.
    coap_address_t proven, claimed;
    uint8_t echo[CN_COAP_ECHO_SIZE]; // random
};

struct cn_coap_sessions {
    const struct cn_coap_server_config *config; // the server's settings: find_key and the limits
    struct cn_coap_session *first;              // newest first
    struct cn_coap_board *boards[CN_COAP_SESSION_BUCKETS];
    uint32_t count;                          // sessions with a board
    uint32_t waiting;                        // sessions over TCP without a request so far
    uint32_t unfinished;                     // sessions whose handshake has not finished
    uint32_t unserved;                       // sessions without a board
    uint64_t expired_ms;                     // clock of the last look for those to be ended
    uint64_t handshakes[CN_COAP_HANDSHAKES]; // since open
    bool closing;                            // at least one session is closing
    uint8_t key[CN_KEY_SIZE];                // the key that was looked up last, or random bytes
    coap_bin_const_t key_view;               // of key, for libcoap
};

// Borrows config until deinit. Returns the error of cn_crypto_random if that fails.
cn_err cn_coap_sessions_init(struct cn_coap_sessions *sessions,
                             const struct cn_coap_server_config *config);

// Frees the boards. Call it after libcoap's context was freed, which ends all sessions.
void cn_coap_sessions_deinit(struct cn_coap_sessions *sessions);

// Returns the key of an identity; libcoap's callback in a handshake. Adds a session. An identity
// without a key gets a random one, so that its handshake fails exactly as it does with a wrong key.
const coap_bin_const_t *cn_coap_sessions_choose_key(coap_bin_const_t *identity,
                                                    coap_session_t *coap, void *sessions);

// Adds a session for a new connection over TCP, which has sent no request yet. While more than half
// of the connections that may wait do, a source (an IPv4 address, a /64 of IPv6) that has more than
// an eighth of them gives up its oldest one. When all are taken, the source that has most does.
void cn_coap_sessions_connected(struct cn_coap_sessions *sessions, coap_session_t *coap);

// Counts what became of the handshake of a session that libcoap ends, unless a request of it was
// counted before. session is NULL if it made none.
void cn_coap_sessions_count_end(struct cn_coap_sessions *sessions, coap_session_t *coap,
                                const struct cn_coap_session *session);

// Removes and frees a session that libcoap has ended.
void cn_coap_sessions_forget(struct cn_coap_sessions *sessions, struct cn_coap_session *session);

// Returns the session of a request, or NULL when the request must not be served. The first request
// of a new session marks the board's older sessions for closing. Sets *full when there is no room
// for another board.
struct cn_coap_session *cn_coap_sessions_admit(struct cn_coap_sessions *sessions,
                                               coap_session_t *coap, bool *full);

// Returns whether the board has proven that it receives at the address that the request came from.
bool cn_coap_session_is_proven(struct cn_coap_session *session, const coap_pdu_t *pdu);

// Returns the board of this name; NULL: it has made no request since the server started.
const struct cn_coap_board *cn_coap_sessions_find(const struct cn_coap_sessions *sessions,
                                                  const char *board);

// Marks all sessions of a board for closing; tidy ends them.
void cn_coap_sessions_drop(struct cn_coap_sessions *sessions, const char *board);

// Marks one session for closing, also one that was not admitted.
void cn_coap_sessions_end(struct cn_coap_sessions *sessions, coap_session_t *coap);

// Ends the sessions that are marked, those that sent no request in ten seconds, and those without a
// request of a board that has finished another handshake since. Must not be
// called from a handler: libcoap may still be working on a request of such a session.
void cn_coap_sessions_tidy(struct cn_coap_sessions *sessions);
