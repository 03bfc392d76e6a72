#include "transport/coap/coap_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/link.h"
#include "runtime/port/platform.h"
#include "transport/coap/coap_common.h"
#include "transport/coap/retry.h"
#include "transport/coap/security.h"

#define HANDSHAKE_MS                                                                               \
    10000 // below libcoap's own limit of 31 s, so that an earlier failure comes from the peer
#define SILENCE_MS 5000         // limit of an unanswered request; a new handshake costs little
#define STREAM_SILENCE_MS 10000 // longer: TCP recovers by itself after a few losses in a row
#define RETRY_MIN_MS 250
#define RETRY_MAX_MS 60000
#define REFUSED_MIN_MS 5000 // asking often does not make a wrong key right
#define REFUSED_MAX_MS 600000
// Rounds in a row until a board counts as refused: a damaged record causes the same alert as a
// wrong key.
#define REFUSALS 3
#define ADDRESS_SIZE 128
#define TAG_SIZE 8
#define ECHO_MAX 40        // RFC 9175, 2.2.1
#define NO_SUCCESS 2       // No-Response: no interest in class 2 (RFC 7967, 2)
#define SMALL_SEGMENT 1140 // bytes of TCP payload in an IPv6 packet of 1200 bytes

enum phase {
    WAITING, // until due_us, then tries the next address
    LOOKING_UP,
    SHAKING_HANDS, // until due_us
    CONNECTED,
};

// The state of a session as libcoap's callbacks saw it. The client acts on it after libcoap has
// returned, because a callback must not release a session.
enum fate {
    ALIVE,
    UNREACHABLE, // ICMP or TCP reports that nobody listens
    ENDED,       // closed, reset or damaged
    DENIED,      // the handshake ended with an alert about the key
};

struct client {
    struct cn_exchange base;
    char board[CN_NAME_SIZE];
    uint8_t key[CN_KEY_SIZE];
    char addresses[CN_LINK_ADDRESSES][ADDRESS_SIZE];
    uint32_t address_count;
    uint64_t handshake_us, silence_us, stream_silence_us;
    enum cn_link_transport transport;

    coap_context_t *coap;
    coap_session_t *session;
    struct cn_lookup *lookup;
    enum phase phase;
    enum fate fate;
    uint64_t due_us;
    bool connected_tcp;           // the TCP connection was made, so a later end comes from the peer
    bool small_segments;          // the next TCP connections use small segments
    uint32_t address;             // index of the configured address that is tried now
    struct cn_address_list found; // numeric addresses of that address; none: to be looked up
    uint32_t tried;               // index in found of the address that is tried now
    // A round tries all configured addresses once.
    bool round_refused;     // an address refused the key in this round
    uint32_t refusals;      // rounds in a row in which an address refused the key
    bool round_heard;       // an address sent anything in this round, even that nobody listens
    bool other_tried;       // this round uses the transport that is not preferred
    uint8_t echo[ECHO_MAX]; // the server's Echo option, which requests repeat
    size_t echo_size;       // 0: there is none
    uint64_t asked_us;      // time of the first request since the last answer; 0: none
    struct cn_backoff retry, refused;
};

static struct client *client_of(coap_session_t *session)
{
    return coap_context_get_app_data(coap_session_get_context(session));
}

static void read_options(const coap_pdu_t *pdu, struct cn_exchange_reply *reply)
{
    coap_opt_iterator_t iterator;
    coap_opt_t *option = coap_check_option(pdu, COAP_OPTION_MAXAGE, &iterator);

    if (option)
        reply->max_age_s = coap_decode_var_bytes(coap_opt_value(option), coap_opt_length(option));
    option = coap_check_option(pdu, COAP_OPTION_OBSERVE, &iterator);
    if (option) {
        reply->observed = true;
        reply->sequence = coap_decode_var_bytes(coap_opt_value(option), coap_opt_length(option));
    }
}

// Keeps the Echo option of an answer; requests repeat it until one is answered (RFC 9175, 2.3).
// Returns true when the answer held nothing else.
static bool take_echo(struct client *client, const coap_pdu_t *pdu)
{
    coap_opt_iterator_t iterator;
    coap_opt_t *option = coap_check_option(pdu, COAP_OPTION_ECHO, &iterator);

    client->echo_size = 0;
    if (!option || coap_pdu_get_code(pdu) != (coap_pdu_code_t)CN_COAP_UNAUTHORIZED ||
        coap_opt_length(option) > ECHO_MAX)
        return false;
    client->echo_size = coap_opt_length(option);
    memcpy(client->echo, coap_opt_value(option), client->echo_size);
    return true;
}

static coap_response_t on_response(coap_session_t *session, const coap_pdu_t *sent,
                                   const coap_pdu_t *received, const coap_mid_t mid)
{
    struct client *client = client_of(session);
    coap_bin_const_t token = coap_pdu_get_token(received);
    struct cn_exchange_reply reply = {.code = (unsigned)coap_pdu_get_code(received)};

    (void)sent;
    (void)mid;
    if (session != client->session || token.length != TAG_SIZE)
        return COAP_RESPONSE_FAIL;
    client->asked_us = 0;
    client->retry.tries = 0; // only an answer shows that a session works
    cn_coap_count(session, received, false, &client->base.stats.down);
    memcpy(&reply.tag, token.s, TAG_SIZE);
    if (take_echo(client, received)) {
        if (client->base.again)
            client->base.again(client->base.context, reply.tag);
        return COAP_RESPONSE_OK;
    }
    coap_get_data(received, &reply.size, &reply.body);
    read_options(received, &reply);
    return client->base.sink(client->base.context, &reply) ? COAP_RESPONSE_OK : COAP_RESPONSE_FAIL;
}

// After the handshake an alert says nothing about the key.
static bool denies_key(const struct client *client, const coap_session_t *session)
{
    coap_tls_library_t library;

    return client->phase == SHAKING_HANDS &&
           cn_security_denies_key(coap_session_get_tls(session, &library));
}

static void on_nack(coap_session_t *session, const coap_pdu_t *sent,
                    const coap_nack_reason_t reason, const coap_mid_t mid)
{
    struct client *client = client_of(session);

    (void)sent;
    (void)mid;
    if (session != client->session || client->fate == DENIED) // closing brings another end
        return;
    if (reason == COAP_NACK_ICMP_ISSUE)
        client->fate = UNREACHABLE;
    else if (reason == COAP_NACK_TLS_FAILED || reason == COAP_NACK_TLS_LAYER_FAILED)
        client->fate = denies_key(client, session) ? DENIED : ENDED;
    else if (reason == COAP_NACK_NOT_DELIVERABLE && client->base.stream)
        client->fate = client->connected_tcp ? ENDED : UNREACHABLE;
}

static int on_event(coap_session_t *session, coap_event_t event)
{
    struct client *client = client_of(session);

    if (session == client->session && event == COAP_EVENT_TCP_CONNECTED)
        client->connected_tcp = true;
    return 0;
}

static uint64_t after_ms(uint64_t ms)
{
    return cn_platform_now_us() + ms * 1000;
}

// Ends the attempt or the session. The caller sets due_us, the time of the next attempt.
static void disconnect(struct client *client)
{
    coap_session_t *session = client->session;

    client->session = NULL;
    if (session)
        coap_session_release(session);
    cn_lookup_free(client->lookup);
    client->lookup = NULL;
    client->fate = ALIVE;
    client->connected_tcp = false;
    client->echo_size = 0;
    client->asked_us = 0;
    client->phase = WAITING;
}

// Makes the next TCP connections use smaller segments, because this one was made and then stalled.
// A path may lose its large packets silently while it takes smaller ones (RFC 2923, 2.1); the
// kernel keeps sending large ones. Smaller segments cost at most 1 % more bytes, so they stay. The
// TCP handshake tells the other end, whose segments become smaller, too.
static void use_small_segments(struct client *client)
{
    if (!client->base.stream || !client->connected_tcp || client->small_segments)
        return;
    client->small_segments = true;
    coap_context_set_tcp_segment_max(client->coap, SMALL_SEGMENT);
    cn_log(CN_LOG_DEBUG, "link", "%s: smaller segments from now on, of at most %d bytes",
           client->addresses[client->address], SMALL_SEGMENT);
}

// Switches to the other transport for the next round and returns true, or returns false. UDP is
// left only if nothing at all was heard: the path may block it. TCP is left after any failed round.
// A failed round over the other transport switches back.
static bool try_other(struct client *client)
{
    bool other = client->transport == CN_LINK_AUTO && !client->other_tried &&
                 (client->base.stream || !client->round_heard);

    if (other || client->other_tried)
        client->base.stream = !client->base.stream;
    client->other_tried = other;
    return other;
}

// Pauses after every address has failed. A damaged record may cause an alert about the key, so the
// board counts as refused only after several rounds.
static void pause(struct client *client)
{
    bool refused;

    client->refusals = client->round_refused ? client->refusals + 1 : 0;
    refused = client->refusals >= REFUSALS;
    if (refused)
        client->base.state = CN_EXCHANGE_REFUSED;
    else if (!client->round_refused)
        client->base.state = CN_EXCHANGE_DOWN;
    client->due_us = after_ms(cn_backoff_next_ms(refused ? &client->refused : &client->retry));
    client->round_refused = client->round_heard = false;
}

// Makes the next attempt look up its name again.
static void forget_found(struct client *client)
{
    client->found.count = client->tried = 0;
}

static void fail(struct client *client, bool refused, const char *why)
{
    const char *address = client->addresses[client->address];

    cn_log(CN_LOG_DEBUG, "link", "%s: %s", address, why);
    client->round_heard |= refused || client->fate != ALIVE;
    disconnect(client);
    // A refusal says more to people than the silence of other addresses does.
    if (refused || !client->round_refused)
        snprintf(client->base.text, sizeof(client->base.text), "%s: %s", address, why);
    client->round_refused |= refused;
    if (++client->tried < client->found.count) {
        client->due_us = after_ms(0);
        return;
    }
    forget_found(client);
    client->address = (client->address + 1) % client->address_count;
    if (client->address || try_other(client)) { // addresses are left to try
        client->due_us = after_ms(0);
        return;
    }
    pause(client);
}

// Ends a session that worked. The jitter keeps boards from reconnecting in the same millisecond.
static void lose(struct client *client, const char *why)
{
    cn_log(CN_LOG_DEBUG, "link", "%s: %s", client->addresses[client->address], why);
    disconnect(client);
    client->base.state = CN_EXCHANGE_CONNECTING;
    client->address = 0;
    forget_found(client);
    client->due_us = after_ms(cn_backoff_next_ms(&client->retry));
}

static void shake_hands(struct client *client)
{
    // With a connection ID the session survives a new address, for example behind a NAT (RFC 9146).
    coap_dtls_cpsk_t setup = {.version = COAP_DTLS_CPSK_SETUP_VERSION, .use_cid = 1};
    coap_address_t peer;
    bool stream = client->base.stream;

    setup.psk_info.identity.s = (const uint8_t *)client->board;
    setup.psk_info.identity.length = strlen(client->board);
    setup.psk_info.key.s = client->key;
    setup.psk_info.key.length = sizeof(client->key);
    cn_coap_address(&client->found.at[client->tried], &peer);
    client->session = coap_new_client_session_psk2(
        client->coap, NULL, &peer, stream ? COAP_PROTO_TLS : COAP_PROTO_DTLS, &setup);
    if (!client->session) {
        fail(client, false, "no route or no memory");
        return;
    }
    if (!stream)
        coap_session_set_mtu(client->session, CN_COAP_MTU);
    client->base.body_max = stream ? CN_COAP_BODY_MAX : CN_COAP_DATAGRAM_MAX;
    client->base.searches_mtu = !stream;
    client->phase = SHAKING_HANDS;
    client->due_us = cn_platform_now_us() + client->handshake_us;
}

static void look_up(struct client *client)
{
    cn_err err = cn_lookup_poll(client->lookup, &client->found);

    if (err == CN_EAGAIN)
        return;
    cn_lookup_free(client->lookup);
    client->lookup = NULL;
    if (err)
        fail(client, false, "the name is not known or no name server answers");
    else
        shake_hands(client);
}

static void start_attempt(struct client *client)
{
    const char *text = client->addresses[client->address];

    if (!client->found.count && !cn_address_parse(text, &client->found.at[0]))
        client->found.count = 1;
    if (client->found.count) {
        shake_hands(client);
        return;
    }
    if (cn_lookup_start(text, &client->lookup)) {
        fail(client, false, "no memory for a look-up");
        return;
    }
    client->phase = LOOKING_UP;
}

static void watch_handshake(struct client *client)
{
    coap_tls_library_t library;

    if (client->fate == DENIED) {
        fail(client, true, "refused: this board is unknown or revoked there, or its key is wrong");
    } else if (client->fate == ENDED) {
        fail(client, false, "the handshake was cut off or damaged");
    } else if (client->fate == UNREACHABLE) {
        fail(client, false, "nobody listens there");
    } else if (coap_session_get_state(client->session) == COAP_SESSION_STATE_ESTABLISHED) {
        if (cn_security_check_suite(coap_session_get_tls(client->session, &library))) {
            fail(client, true, "offers no cipher suite that is good enough");
            return;
        }
        cn_log(CN_LOG_DEBUG, "link", "%s: connected over %s", client->addresses[client->address],
               client->base.stream ? "TCP" : "UDP");
        client->phase = CONNECTED;
        client->base.state = CN_EXCHANGE_UP;
        client->round_refused = client->round_heard = client->other_tried = false;
        client->refused.tries = client->refusals = 0;
        client->base.sessions++;
    } else if (cn_platform_now_us() >= client->due_us) {
        use_small_segments(client);
        fail(client, false, "no answer");
    }
}

static uint64_t silence_us(const struct client *client)
{
    return client->base.stream ? client->stream_silence_us : client->silence_us;
}

static void watch_session(struct client *client)
{
    if (client->fate != ALIVE) {
        lose(client, client->fate == UNREACHABLE ? "nobody listens there any more"
                                                 : "the session was closed");
        return;
    }
    if (!client->asked_us || cn_platform_now_us() - client->asked_us < silence_us(client))
        return;
    use_small_segments(client);
    lose(client, "silent");
}

static uint64_t step(struct cn_exchange *exchange)
{
    struct client *client = (struct client *)exchange;

    if (cn_coap_process(client->coap, client->addresses[client->address], 0))
        cn_log(CN_LOG_DEBUG, "link", "libcoap cannot wait for its sockets");
    switch (client->phase) {
    case WAITING:
        if (cn_platform_now_us() >= client->due_us)
            start_attempt(client);
        break;
    case LOOKING_UP:
        look_up(client);
        break;
    case SHAKING_HANDS:
        watch_handshake(client);
        break;
    case CONNECTED:
        watch_session(client);
        break;
    }
    if (client->phase == LOOKING_UP)
        return after_ms(20);
    if (client->phase != CONNECTED)
        return client->due_us;
    return client->asked_us ? client->asked_us + silence_us(client) : UINT64_MAX;
}

static bool add_path(coap_pdu_t *pdu, const char *path)
{
    while (*path) {
        size_t length = strcspn(path, "/");

        if (!coap_add_option(pdu, COAP_OPTION_URI_PATH, length, (const uint8_t *)path))
            return false;
        path += length + (path[length] == '/');
    }
    return true;
}

// Adds token, options and body. The options are in the order of their numbers, as CoAP requires:
// Observe 6, Uri-Path 11, Echo 252, No-Response 258.
static bool fill(const struct client *client, coap_pdu_t *pdu,
                 const struct cn_exchange_request *request)
{
    const uint8_t no_success = NO_SUCCESS;

    return coap_add_token(pdu, TAG_SIZE, (const uint8_t *)&request->tag) &&
           (!request->observe || coap_add_option(pdu, COAP_OPTION_OBSERVE, 0, NULL)) &&
           add_path(pdu, request->path) &&
           (!client->echo_size ||
            coap_add_option(pdu, COAP_OPTION_ECHO, client->echo_size, client->echo)) &&
           (!request->silent || coap_add_option(pdu, COAP_OPTION_NORESPONSE, 1, &no_success)) &&
           (!request->size || coap_add_data(pdu, request->size, request->body));
}

static void add_bytes(struct cn_link_bytes *total, const struct cn_link_bytes *more)
{
    total->payload += more->payload;
    total->messages += more->messages;
    total->wire += more->wire;
}

static cn_err send_request(struct cn_exchange *exchange, const struct cn_exchange_request *request)
{
    struct client *client = (struct client *)exchange;
    struct cn_link_bytes sent = {0}; // coap_send takes the PDU
    coap_pdu_t *pdu;

    if (client->phase != CONNECTED || client->fate != ALIVE)
        return CN_EAGAIN;
    pdu = coap_new_pdu(COAP_MESSAGE_NON, (coap_pdu_code_t)request->method, client->session);
    if (!pdu)
        return CN_ENOMEM;
    if (!fill(client, pdu, request)) {
        coap_delete_pdu(pdu);
        return CN_ERANGE;
    }
    cn_coap_count(client->session, pdu, true, &sent);
    // A request that cannot be sent starts the silence, too: a socket bound to an address that this
    // machine has lost never sends again.
    if (!request->silent && !request->probe && !client->asked_us)
        client->asked_us = cn_platform_now_us();
    if (coap_send(client->session, pdu) == COAP_INVALID_MID)
        return CN_EAGAIN; // the socket buffer is full or the session is ending
    add_bytes(&client->base.stats.up, &sent);
    return CN_OK;
}

static cn_err use_stream(struct cn_exchange *exchange, bool stream)
{
    struct client *client = (struct client *)exchange;

    if (client->transport != CN_LINK_AUTO)
        return CN_ENOTSUP;
    if (stream == exchange->stream)
        return CN_OK;
    exchange->stream = stream;
    exchange->state = CN_EXCHANGE_CONNECTING;
    client->other_tried = false;
    disconnect(client);
    forget_found(client);
    client->due_us = after_ms(0);
    return CN_OK;
}

static void close_client(struct cn_exchange *exchange)
{
    struct client *client = (struct client *)exchange;

    if (!client)
        return;
    if (client->coap) {
        disconnect(client);
        coap_free_context(client->coap);
    }
    cn_crypto_wipe(client->key, sizeof(client->key));
    free(client);
}

static const struct cn_exchange_ops ops = {
    .close = close_client,
    .send = send_request,
    .step = step,
    .use_stream = use_stream,
};

static cn_err configure(struct client *client, const struct cn_coap_client_config *config)
{
    if (!cn_name_valid(config->board) || !config->address_count ||
        config->address_count > CN_LINK_ADDRESSES)
        return CN_EINVAL;
    snprintf(client->board, sizeof(client->board), "%s", config->board);
    memcpy(client->key, config->key, sizeof(client->key));
    client->address_count = config->address_count;
    for (uint32_t i = 0; i < config->address_count; i++) {
        struct cn_address address;

        if (strlen(config->addresses[i]) >= ADDRESS_SIZE ||
            cn_address_parse(config->addresses[i], &address) == CN_EINVAL)
            return CN_EINVAL;
        snprintf(client->addresses[i], ADDRESS_SIZE, "%s", config->addresses[i]);
    }
    client->handshake_us = 1000ull * (config->handshake_ms ? config->handshake_ms : HANDSHAKE_MS);
    client->silence_us = 1000ull * (config->silence_ms ? config->silence_ms : SILENCE_MS);
    client->stream_silence_us =
        1000ull * (config->silence_ms ? config->silence_ms : STREAM_SILENCE_MS);
    client->transport = config->transport;
    client->base.stream = config->transport == CN_LINK_TCP;
    client->base.body_max = CN_COAP_DATAGRAM_MAX;
    client->retry = (struct cn_backoff){.min_ms = RETRY_MIN_MS, .max_ms = RETRY_MAX_MS};
    client->refused = (struct cn_backoff){.min_ms = REFUSED_MIN_MS, .max_ms = REFUSED_MAX_MS};
    if (config->retry_max_ms)
        client->retry.max_ms = client->refused.max_ms = config->retry_max_ms;
    if (client->refused.min_ms > client->refused.max_ms)
        client->refused.min_ms = client->refused.max_ms;
    return cn_crypto_random(&client->retry.seed, sizeof(client->retry.seed));
}

cn_err cn_coap_client_open(const struct cn_coap_client_config *config,
                           struct cn_exchange **exchange)
{
    struct client *client = calloc(1, sizeof(*client));
    cn_err err;

    if (!client)
        return CN_ENOMEM;
    client->base.ops = &ops;
    err = configure(client, config);
    if (err) {
        free(client);
        return err;
    }
    client->refused.seed = ~client->retry.seed;
    cn_coap_start();
    client->coap = coap_new_context(NULL);
    if (!client->coap) {
        close_client(&client->base);
        return CN_ENOMEM;
    }
    coap_context_set_app_data(client->coap, client);
    coap_context_set_block_mode(client->coap, 0);
    coap_register_response_handler(client->coap, on_response);
    coap_register_nack_handler(client->coap, on_nack);
    coap_register_event_handler(client->coap, on_event);
    client->base.descriptor = coap_context_get_coap_fd(client->coap);
    *exchange = &client->base;
    return CN_OK;
}
