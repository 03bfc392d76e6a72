#include "transport/coap/coap_sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/name.h"
#include "runtime/port/platform.h"
#include "transport/coap/security.h"

#define WAIT_MS 10000    // from a TCP connection, or from the end of a handshake, to a request
#define EXPIRE_MS 1000   // between two looks at the sessions without a request
#define WAITING_MAX 256u // TCP connections without a request, whatever the settings say

cn_err cn_coap_sessions_init(struct cn_coap_sessions *sessions,
                             const struct cn_coap_server_config *config)
{
    *sessions = (struct cn_coap_sessions){.config = config};
    sessions->key_view = (coap_bin_const_t){.length = CN_KEY_SIZE, .s = sessions->key};
    return cn_crypto_random(sessions->key, sizeof(sessions->key));
}

void cn_coap_sessions_deinit(struct cn_coap_sessions *sessions)
{
    for (size_t i = 0; i < CN_COAP_SESSION_BUCKETS; i++) {
        struct cn_coap_board *next;

        for (struct cn_coap_board *board = sessions->boards[i]; board; board = next) {
            next = board->next;
            free(board);
        }
    }
    cn_crypto_wipe(sessions->key, sizeof(sessions->key));
}

static struct cn_coap_board **board_slot(const struct cn_coap_sessions *sessions, const char *name)
{
    size_t bucket = cn_name_hash(name) % CN_COAP_SESSION_BUCKETS;
    struct cn_coap_board **slot = (struct cn_coap_board **)&sessions->boards[bucket];

    while (*slot && strcmp((*slot)->name, name) != 0)
        slot = &(*slot)->next;
    return slot;
}

static struct cn_coap_board *get_board(struct cn_coap_sessions *sessions, const char *name)
{
    struct cn_coap_board **slot = board_slot(sessions, name);

    if (!*slot) {
        *slot = calloc(1, sizeof(**slot));
        if (*slot)
            snprintf((*slot)->name, sizeof((*slot)->name), "%s", name);
    }
    return *slot;
}

const struct cn_coap_board *cn_coap_sessions_find(const struct cn_coap_sessions *sessions,
                                                  const char *board)
{
    return *board_slot(sessions, board);
}

static bool has_session(const struct cn_coap_sessions *sessions, const char *board)
{
    for (const struct cn_coap_session *session = sessions->first; session;
         session = session->next) {
        if (session->board && strcmp(session->board->name, board) == 0)
            return true;
    }
    return false;
}

static bool read_identity(const coap_bin_const_t *identity, char board[CN_NAME_SIZE])
{
    if (!identity || identity->length >= CN_NAME_SIZE || memchr(identity->s, 0, identity->length))
        return false;
    memcpy(board, identity->s, identity->length);
    board[identity->length] = 0;
    return cn_name_valid(board);
}

static void count(struct cn_coap_sessions *sessions, enum cn_coap_handshake result)
{
    sessions->handshakes[result]++;
}

static struct cn_coap_session *add_session(struct cn_coap_sessions *sessions, coap_session_t *coap)
{
    struct cn_coap_session *session = calloc(1, sizeof(*session));

    if (!session)
        return NULL;
    session->coap = coap;
    session->since_ms = cn_platform_now_ms();
    sessions->unserved++;
    sessions->unfinished++;
    session->proven = session->claimed = *coap_session_get_addr_remote(coap);
    session->next = sessions->first;
    sessions->first = session;
    coap_session_set_app_data(coap, session);
    return session;
}

const coap_bin_const_t *cn_coap_sessions_choose_key(coap_bin_const_t *identity,
                                                    coap_session_t *coap, void *context)
{
    struct cn_coap_sessions *sessions = context;
    char board[CN_NAME_SIZE];
    cn_err err = CN_EAUTH;

    if (!coap_session_get_app_data(coap))
        (void)add_session(sessions, coap); // out of memory: its first request adds it
    if (read_identity(identity, board))
        err = sessions->config->find_key(sessions->config->context, board, sessions->key);
    if (err && cn_crypto_random(sessions->key, sizeof(sessions->key)))
        return NULL;
    return &sessions->key_view;
}

static void mark_closing(struct cn_coap_sessions *sessions, struct cn_coap_session *session)
{
    session->closing = true;
    sessions->closing = true;
}

void cn_coap_sessions_drop(struct cn_coap_sessions *sessions, const char *board)
{
    for (struct cn_coap_session *session = sessions->first; session; session = session->next) {
        if (session->board && strcmp(session->board->name, board) == 0)
            mark_closing(sessions, session);
    }
}

void cn_coap_sessions_end(struct cn_coap_sessions *sessions, coap_session_t *coap)
{
    struct cn_coap_session *session = coap_session_get_app_data(coap);

    if (!session)
        session = add_session(sessions, coap);
    if (session)
        mark_closing(sessions, session);
}

// A connection over TCP made its first request, or ends.
static void stop_waiting(struct cn_coap_sessions *sessions, struct cn_coap_session *session)
{
    sessions->waiting -= session->waits;
    session->waits = false;
}

static void mark_finished(struct cn_coap_sessions *sessions, struct cn_coap_session *session)
{
    sessions->unfinished -= !session->finished;
    session->finished = true;
}

// Counts a session for which there is no room, once.
static void turn_away(struct cn_coap_sessions *sessions, struct cn_coap_session *session,
                      coap_session_t *coap)
{
    if (!session)
        session = add_session(sessions, coap);
    if (session && !session->turned_away)
        count(sessions, CN_COAP_HANDSHAKE_FULL);
    if (session)
        session->turned_away = true;
}

// Assigns the session to a board, and adds the session first if there is none. Returns false when
// the session must not be served.
static bool admit_board(struct cn_coap_sessions *sessions, struct cn_coap_session **session,
                        coap_session_t *coap, const char *name)
{
    struct cn_coap_board *board;

    // Asks for the key again: the board may have been revoked after the handshake, and drop ends
    // only sessions that were admitted.
    if (sessions->config->find_key(sessions->config->context, name, sessions->key))
        return false;
    cn_coap_sessions_drop(sessions, name);
    board = get_board(sessions, name);
    if (board && !*session)
        *session = add_session(sessions, coap);
    if (!board || !*session)
        return false;
    stop_waiting(sessions, *session);
    mark_finished(sessions, *session);
    sessions->unserved--;
    (*session)->board = board;
    sessions->count++;
    return true;
}

struct cn_coap_session *cn_coap_sessions_admit(struct cn_coap_sessions *sessions,
                                               coap_session_t *coap, bool *full)
{
    struct cn_coap_session *session = coap_session_get_app_data(coap);
    coap_tls_library_t library;
    char name[CN_NAME_SIZE];

    *full = false;
    if (!read_identity(coap_session_get_psk_identity(coap), name) ||
        cn_security_check_suite(coap_session_get_tls(coap, &library)) ||
        (session && session->closing))
        return NULL;
    if (session && session->board) {
        if (strcmp(session->board->name, name) == 0)
            return session;
        mark_closing(sessions, session); // another board made a handshake from the same address
        return NULL;
    }
    *full = sessions->count >= sessions->config->sessions_max && !has_session(sessions, name);
    if (*full)
        turn_away(sessions, session, coap);
    if (*full || !admit_board(sessions, &session, coap, name))
        return NULL;
    count(sessions, CN_COAP_HANDSHAKE_OK);
    return session;
}

// Says whether one host may choose between two addresses: an IPv4 address, or a /64 of IPv6.
static bool same_source(const coap_address_t *a, const coap_address_t *b)
{
    const struct in6_addr *x = &a->addr.sin6.sin6_addr, *y = &b->addr.sin6.sin6_addr;

    if (a->addr.sa.sa_family != b->addr.sa.sa_family)
        return false;
    if (a->addr.sa.sa_family == AF_INET6)
        return memcmp(x, y, IN6_IS_ADDR_V4MAPPED(x) || IN6_IS_ADDR_V4MAPPED(y) ? 16 : 8) == 0;
    return a->addr.sin.sin_addr.s_addr == b->addr.sin.sin_addr.s_addr;
}

// TCP connections without a request, newest first.
struct waiting {
    struct cn_coap_session *at[WAITING_MAX];
    uint32_t count;
};

// Returns the number of connections of a source, and sets *first to the oldest of them.
static uint32_t count_source(const struct waiting *waiting, const coap_address_t *source,
                             struct cn_coap_session **first)
{
    uint32_t count = 0;

    *first = NULL;
    for (uint32_t i = 0; i < waiting->count; i++) {
        if (!same_source(&waiting->at[i]->proven, source))
            continue;
        *first = waiting->at[i];
        count++;
    }
    return count;
}

static struct cn_coap_session *first_of_largest(const struct waiting *waiting)
{
    struct cn_coap_session *found = NULL, *first;
    uint32_t most = 0;

    for (uint32_t i = waiting->count; i-- > 0;) {
        uint32_t count = count_source(waiting, &waiting->at[i]->proven, &first);

        if (count > most)
            found = first;
        most = count > most ? count : most;
    }
    return found;
}

// Bounds the TCP connections that send no request, by their source. libcoap does the same for those
// over UDP: it makes no session before the cookie, and counts handshakes.
void cn_coap_sessions_connected(struct cn_coap_sessions *sessions, coap_session_t *coap)
{
    struct cn_coap_session *added = add_session(sessions, coap), *first;
    uint32_t max = sessions->config->handshakes_max;
    struct waiting waiting = {.count = 0};

    if (!added)
        return; // out of memory: its first request adds the session
    added->waits = true;
    sessions->waiting++;
    max = max < WAITING_MAX ? max : WAITING_MAX - 1;
    for (struct cn_coap_session *session = sessions->first; session; session = session->next) {
        if (session->waits && !session->closing && waiting.count < WAITING_MAX)
            waiting.at[waiting.count++] = session;
    }
    if (waiting.count > max / 2 && count_source(&waiting, &added->proven, &first) > max / 8 + 1)
        mark_closing(sessions, first);
    else if (waiting.count > max)
        mark_closing(sessions, first_of_largest(&waiting));
}

void cn_coap_sessions_count_end(struct cn_coap_sessions *sessions, coap_session_t *coap,
                                const struct cn_coap_session *session)
{
    const coap_bin_const_t *identity = coap_session_get_psk_identity(coap);
    uint8_t key[CN_KEY_SIZE];
    char board[CN_NAME_SIZE];

    if (session && (session->board || session->turned_away))
        return;
    if (!identity || !identity->s)
        count(sessions, CN_COAP_HANDSHAKE_UNFINISHED);
    else if (!read_identity(identity, board) ||
             sessions->config->find_key(sessions->config->context, board, key))
        count(sessions, CN_COAP_HANDSHAKE_UNKNOWN);
    else
        count(sessions, CN_COAP_HANDSHAKE_FAILED);
    cn_crypto_wipe(key, sizeof(key));
}

void cn_coap_sessions_forget(struct cn_coap_sessions *sessions, struct cn_coap_session *session)
{
    struct cn_coap_session **link = &sessions->first;

    while (*link && *link != session)
        link = &(*link)->next;
    if (*link)
        *link = session->next;
    coap_session_set_app_data(session->coap, NULL);
    stop_waiting(sessions, session);
    mark_finished(sessions, session);
    if (session->board)
        sessions->count--;
    else
        sessions->unserved--;
    free(session);
}

bool cn_coap_session_is_proven(struct cn_coap_session *session, const coap_pdu_t *pdu)
{
    const coap_address_t *address = coap_session_get_addr_remote(session->coap);
    coap_opt_iterator_t iterator;
    coap_opt_t *option;

    if (coap_address_equals(address, &session->proven))
        return true;
    if (!coap_address_equals(address, &session->claimed)) {
        // Without a random number the address stays unproven, and the next request tries again.
        if (!cn_crypto_random(session->echo, sizeof(session->echo)))
            session->claimed = *address;
        return false;
    }
    option = coap_check_option(pdu, COAP_OPTION_ECHO, &iterator);
    if (!option || coap_opt_length(option) != CN_COAP_ECHO_SIZE ||
        memcmp(coap_opt_value(option), session->echo, CN_COAP_ECHO_SIZE) != 0)
        return false;
    session->proven = *address;
    return true;
}

static void close_marked(struct cn_coap_sessions *sessions)
{
    struct cn_coap_session *next;

    if (!sessions->closing)
        return;
    sessions->closing = false;
    for (struct cn_coap_session *session = sessions->first; session; session = next) {
        next = session->next;
        if (session->closing)
            coap_session_disconnected(session->coap, COAP_NACK_RST);
    }
}

// An identity is proven when the handshake has finished, so nobody else ends a board's session
// here.
static void finish(struct cn_coap_sessions *sessions, struct cn_coap_session *own)
{
    mark_finished(sessions, own);
    if (own->board || !read_identity(coap_session_get_psk_identity(own->coap), own->name))
        return;
    for (struct cn_coap_session *session = sessions->first; session; session = session->next) {
        if (session != own && !session->board && strcmp(session->name, own->name) == 0)
            mark_closing(sessions, session);
    }
}

// Looks for handshakes that have finished. libcoap tells of those over TCP only.
static void look_for_finished(struct cn_coap_sessions *sessions)
{
    struct cn_coap_session *session = sessions->first; // the newest
    uint32_t left = sessions->unfinished;

    for (; left && session; session = session->next) {
        if (session->finished)
            continue;
        left--;
        if (coap_session_get_state(session->coap) == COAP_SESSION_STATE_ESTABLISHED)
            finish(sessions, session);
    }
}

// Ends sessions without a request. One that was turned away is told when to come again, and stays.
static void expire_unserved(struct cn_coap_sessions *sessions)
{
    uint64_t now_ms = cn_platform_now_ms();

    if (!sessions->unserved || now_ms - sessions->expired_ms < EXPIRE_MS)
        return;
    sessions->expired_ms = now_ms;
    for (struct cn_coap_session *session = sessions->first; session; session = session->next) {
        if (!session->board && !session->turned_away && !session->closing &&
            now_ms - session->since_ms >= WAIT_MS)
            mark_closing(sessions, session);
    }
}

void cn_coap_sessions_tidy(struct cn_coap_sessions *sessions)
{
    look_for_finished(sessions);
    expire_unserved(sessions);
    close_marked(sessions);
}
