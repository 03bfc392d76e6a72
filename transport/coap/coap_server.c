#include "transport/coap/coap_server.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "transport/coap/coap_common.h"
#include "transport/coap/coap_sessions.h"
#include "transport/coap/route.h"

#define PATH_SIZE 256
#define IDLE_S 300       // a session without traffic ends after this time
#define AMPLIFICATION 3  // largest body for an unproven address, as a multiple of its request
#define STREAM_AROUND 32 // most bytes of a message over TCP around its body
#define NO_SUCCESS 2     // No-Response: no interest in class 2 (RFC 7967, 2)
#define FULL_S 30        // Max-Age of 5.03, when all sessions are taken
#define LIMIT_S 2        // Max-Age of 4.29, after too many requests

struct cn_coap_server {
    struct cn_coap_server_config config; // without listen
    char where[64];                      // the first address of listen, for the log
    coap_context_t *coap;
    struct cn_coap_sessions sessions;
    struct cn_coap_server_stats stats; // without sessions, which cn_coap_server_stats fills in
    struct cn_coap_reply reply;        // the reply to the request that is being handled
    bool notifying;                    // libcoap asks for the content of notifications
    bool ends;                         // close has begun: the context is not used any more
};

static int on_event(coap_session_t *coap, coap_event_t event)
{
    struct cn_coap_server *server = coap_context_get_app_data(coap_session_get_context(coap));
    struct cn_coap_session *session = coap_session_get_app_data(coap);

    if (event == COAP_EVENT_SERVER_SESSION_NEW && coap_session_get_proto(coap) == COAP_PROTO_TLS &&
        !session)
        cn_coap_sessions_connected(&server->sessions, coap);
    if (event == COAP_EVENT_SERVER_SESSION_DEL && !server->ends)
        cn_coap_sessions_count_end(&server->sessions, coap, session);
    if (event == COAP_EVENT_SERVER_SESSION_DEL && session)
        cn_coap_sessions_forget(&server->sessions, session);
    return 0;
}

static bool read_path(const coap_pdu_t *pdu, char path[PATH_SIZE])
{
    coap_string_t *text = coap_get_uri_path(pdu);
    bool fits = text && text->length < PATH_SIZE && !memchr(text->s, 0, text->length);

    if (fits) {
        memcpy(path, text->s, text->length);
        path[text->length] = 0;
    }
    coap_delete_string(text);
    return fits;
}

static bool wants_reply(const coap_pdu_t *pdu)
{
    coap_opt_iterator_t iterator;
    coap_opt_t *option = coap_check_option(pdu, COAP_OPTION_NORESPONSE, &iterator);

    return !option ||
           !(coap_decode_var_bytes(coap_opt_value(option), coap_opt_length(option)) & NO_SUCCESS);
}

// Replaces the reply by 4.01 with an Echo option, which the board's next request repeats.
static void ask_for_proof(struct cn_coap_server *server, const struct cn_coap_session *session,
                          coap_pdu_t *response)
{
    cn_coap_reply_error(&server->reply, CN_COAP_UNAUTHORIZED, "new address");
    coap_add_option(response, COAP_OPTION_ECHO, CN_COAP_ECHO_SIZE, session->echo);
}

// Writes the server's reply into response. board is NULL for a board without a session.
static void write_reply(struct cn_coap_server *server, struct cn_coap_board *board,
                        coap_pdu_t *response)
{
    const struct cn_coap_reply *reply = &server->reply;
    uint8_t number[4];

    coap_pdu_set_code(response, (coap_pdu_code_t)reply->code);
    if (reply->max_age_s)
        coap_add_option(response, COAP_OPTION_MAXAGE,
                        coap_encode_var_safe(number, sizeof(number), reply->max_age_s), number);
    if (reply->size && !coap_add_data(response, reply->size, reply->body)) {
        if (board)
            cn_log_within(&board->oversized, cn_platform_now_ms(), CN_LOG_ERROR, "coap",
                          "an answer of %zu bytes for %s does not fit a message", reply->size,
                          board->name);
        coap_pdu_set_code(response, COAP_RESPONSE_CODE_INTERNAL_ERROR);
    }
}

static bool is_bulk(const struct cn_coap_server *server, const coap_pdu_t *pdu, const char *path)
{
    const struct cn_coap_route *route = cn_route_find(
        server->config.routes, server->config.route_count, (unsigned)coap_pdu_get_code(pdu), path);

    return route && route->bulk;
}

// A notification is no request of the board, so notifications have a limit of their own. Beyond it
// the observer gets 4.29, with which libcoap forgets it.
static bool within_limits(const struct cn_coap_server *server, struct cn_coap_board *board,
                          size_t size, bool bulk, bool notifies)
{
    if (notifies)
        return cn_bucket_take(&board->notifications, server->config.requests_per_s, 1,
                              cn_platform_now_ms());
    return cn_bucket_take(bulk ? &board->bulk : &board->requests,
                          bulk ? (double)server->config.bulk_per_s : server->config.requests_per_s,
                          bulk ? (double)size : 1, cn_platform_now_ms());
}

// Returns the largest body of a message to the peer, in bytes. Over TCP the peer announces the
// largest message (RFC 8323, 5.3.1); the default is 1152.
static size_t reply_max(const coap_session_t *coap)
{
    size_t message;

    if (coap_session_get_proto(coap) != COAP_PROTO_TLS)
        return CN_COAP_DATAGRAM_MAX;
    message = coap_session_max_pdu_size(coap);
    if (message < 2 * STREAM_AROUND)
        return STREAM_AROUND;
    return message - STREAM_AROUND < CN_COAP_BODY_MAX ? message - STREAM_AROUND : CN_COAP_BODY_MAX;
}

// Counts a request by the class of its answer. One that is carried out without an answer counts as
// answered with 2.xx.
static void count_request(struct cn_coap_server *server, const struct cn_coap_request *request)
{
    unsigned class = server->reply.code == CN_COAP_SILENT ? 2 : server->reply.code >> 5;
    if (!request->notifies && class < CN_COAP_CLASSES)
        server->stats.requests[class]++;
}

// Adds a message to the bytes of all boards, and to those of one.
static void count_bytes(const struct cn_coap_session *session, const coap_pdu_t *pdu,
                        bool to_server, struct cn_link_bytes *all, struct cn_link_bytes *one)
{
    cn_coap_count(session->coap, pdu, to_server, all);
    cn_coap_count(session->coap, pdu, to_server, one);
}

static void handle(struct cn_coap_server *server, struct cn_coap_session *session,
                   const coap_pdu_t *pdu, struct cn_coap_request *request)
{
    size_t size = cn_coap_message_size(pdu);
    char path[PATH_SIZE];
    bool readable, bulk;

    if (!request->notifies)
        count_bytes(session, pdu, true, &server->stats.in, &session->board->in);
    request->board = session->board->name;
    request->reply_max = reply_max(session->coap);
    coap_get_data(pdu, &request->size, &request->body);
    readable = read_path(pdu, path);
    bulk = readable && is_bulk(server, pdu, path);
    if (!within_limits(server, session->board, size, bulk, request->notifies)) {
        cn_coap_reply_error(&server->reply, CN_COAP_TOO_MANY, "too much at once");
        server->reply.max_age_s = LIMIT_S;
        count_request(server, request);
        if (!request->wants_reply)
            server->reply.code = CN_COAP_SILENT; // as if it were lost
        return;
    }
    if (readable)
        cn_route_dispatch(server->config.routes, server->config.route_count, server->config.context,
                          (unsigned)coap_pdu_get_code(pdu), path, request, &server->reply);
    else
        cn_coap_reply_error(&server->reply, CN_COAP_NOT_FOUND, "no such resource");
    count_request(server, request);
    if (bulk) // the request was small, its answer may be a part of a model
        cn_bucket_charge(&session->board->bulk, (double)server->reply.size);
}

static void turn_away(struct cn_coap_server *server, coap_pdu_t *response)
{
    cn_coap_reply_error(&server->reply, CN_COAP_UNAVAILABLE, "all sessions are taken");
    server->reply.max_age_s = FULL_S;
    write_reply(server, NULL, response);
}

// Over UDP libcoap also sends notifications that had to wait until the observer confirmed an
// earlier one. They are confirmable, as no answer to a request is. Over TCP all messages look so.
static bool is_notification(const struct cn_coap_server *server, const coap_session_t *coap,
                            const coap_pdu_t *response)
{
    return server->notifying || (coap_session_get_proto(coap) != COAP_PROTO_TLS &&
                                 coap_pdu_get_type(response) == COAP_MESSAGE_CON);
}

// libcoap keeps one observation for each combination of options that are part of the cache key, and
// looks through all of them at each request. So an observation may have no such option beside the
// path: with a query, or with options that nobody knows, a board would have any number of them.
static bool observes_with_more(const coap_pdu_t *pdu)
{
    coap_opt_iterator_t iterator;
    bool observes = coap_check_option(pdu, COAP_OPTION_OBSERVE, &iterator), more = false;

    coap_option_iterator_init(pdu, &iterator, COAP_OPT_ALL);
    while (coap_option_next(&iterator))
        more |= iterator.number != COAP_OPTION_URI_PATH && iterator.number != COAP_OPTION_OBSERVE &&
                iterator.number != COAP_OPTION_ECHO;
    return observes && more;
}

// An error makes libcoap forget the observation, except where the sender wants no errors: such a
// session ends. This does not need a session that is admitted.
static void refuse_observation(struct cn_coap_server *server, coap_session_t *coap,
                               const coap_pdu_t *pdu, const struct cn_coap_request *request,
                               coap_pdu_t *response)
{
    coap_opt_iterator_t iterator;

    cn_coap_reply_error(&server->reply, CN_COAP_BAD_OPTION, "an observation takes no options");
    write_reply(server, NULL, response);
    count_request(server, request);
    if (coap_check_option(pdu, COAP_OPTION_NORESPONSE, &iterator))
        cn_coap_sessions_end(&server->sessions, coap);
}

static void on_request(coap_resource_t *resource, coap_session_t *coap, const coap_pdu_t *pdu,
                       const coap_string_t *query, coap_pdu_t *response)
{
    struct cn_coap_server *server = coap_context_get_app_data(coap_session_get_context(coap));
    struct cn_coap_session *session;
    struct cn_address from;
    struct cn_coap_request request = {.wants_reply = wants_reply(pdu),
                                      .from = &from,
                                      .notifies = is_notification(server, coap, response)};
    bool full, proven;

    (void)resource;
    (void)query;
    if (observes_with_more(pdu)) {
        refuse_observation(server, coap, pdu, &request, response);
        return;
    }
    session = cn_coap_sessions_admit(&server->sessions, coap, &full);
    if (full) {
        turn_away(server, response);
        count_request(server, &request);
    }
    if (!session)
        return; // unless turn_away set the code it is 0.00: libcoap sends no answer
    proven = cn_coap_session_is_proven(session, pdu);
    cn_coap_address_back(coap_session_get_addr_remote(coap), &from);
    handle(server, session, pdu, &request);
    if (server->reply.code == CN_COAP_SILENT)
        return;
    if (!proven && server->reply.size > AMPLIFICATION * cn_coap_message_size(pdu))
        ask_for_proof(server, session, response);
    write_reply(server, session->board, response);
    if (request.wants_reply || server->reply.code >= CN_COAP_BAD_REQUEST)
        count_bytes(session, response, false, &server->stats.out, &session->board->out);
}

static void register_methods(coap_resource_t *resource)
{
    for (unsigned method = CN_COAP_GET; method <= CN_COAP_DELETE; method++)
        coap_register_request_handler(resource, (coap_request_t)method, on_request);
}

// Adds one resource for each observable route, and one for all other paths.
static cn_err add_resources(struct cn_coap_server *server)
{
    coap_resource_t *resource =
        coap_resource_unknown_init2(on_request, COAP_RESOURCE_HANDLE_WELLKNOWN_CORE);

    if (!resource)
        return CN_ENOMEM;
    register_methods(resource);
    coap_add_resource(server->coap, resource);
    for (size_t i = 0; i < server->config.route_count; i++) {
        const struct cn_coap_route *route = &server->config.routes[i];

        if (!route->observable)
            continue;
        resource = coap_resource_init(coap_make_str_const(route->prefix), 0);
        if (!resource)
            return CN_ENOMEM;
        register_methods(resource);
        coap_resource_set_get_observable(resource, 1);
        coap_add_resource(server->coap, resource);
    }
    return CN_OK;
}

// Returns CN_EEXIST when the port is in use, found out by a socket that is closed again. For UDP it
// has no SO_REUSEADDR: libcoap sets that option, with which two servers could share a port and lose
// each other's datagrams silently. type: SOCK_DGRAM or SOCK_STREAM.
static cn_err probe(const struct cn_address *address, int type)
{
    int fd = socket(address->storage.ss_family, type | SOCK_CLOEXEC, 0);
    const int one = 1; // another socket may serve IPv4 at this port
    cn_err err = CN_OK;

    if (fd < 0)
        return cn_err_from_errno(errno);
    if ((address->storage.ss_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one))) ||
        (type == SOCK_STREAM && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one))) ||
        bind(fd, (const struct sockaddr *)&address->storage, address->size) ||
        (type == SOCK_STREAM && listen(fd, 1)))
        err = errno == EADDRINUSE ? CN_EEXIST : CN_EIO;
    close(fd);
    return err;
}

// Listens over UDP and, unless only_udp is set, over TCP at the same port. Sets *protocol to the
// one that an error is about.
static cn_err open_endpoints(struct cn_coap_server *server, const struct cn_address *address,
                             const char **protocol)
{
    coap_address_t converted;
    coap_endpoint_t *endpoint;
    cn_err err = probe(address, SOCK_DGRAM);

    *protocol = "UDP";
    if (err)
        return err;
    cn_coap_address(address, &converted);
    endpoint = coap_new_endpoint(server->coap, &converted, COAP_PROTO_DTLS);
    if (!endpoint)
        return CN_EIO;
    coap_endpoint_set_default_mtu(endpoint, CN_COAP_MTU);
    if (server->config.only_udp)
        return CN_OK;
    *protocol = "TCP";
    err = probe(address, SOCK_STREAM);
    if (err)
        return err;
    return coap_new_endpoint(server->coap, &converted, COAP_PROTO_TLS) ? CN_OK : CN_EIO;
}

static cn_err listen_at(struct cn_coap_server *server, const char *text)
{
    struct cn_address address;
    const char *protocol = "UDP";
    cn_err err = cn_address_resolve(text, &address);

    if (!err)
        err = open_endpoints(server, &address, &protocol);
    if (err == CN_EEXIST)
        cn_log(CN_LOG_ERROR, "coap", "%s: cannot listen: another program uses this %s port", text,
               protocol);
    else if (err)
        cn_log(CN_LOG_ERROR, "coap", "%s: cannot listen: %s", text, cn_err_text(err));
    return err;
}

static cn_err set_up(struct cn_coap_server *server, const struct cn_coap_server_config *config)
{
    coap_dtls_spsk_t keys = {.version = COAP_DTLS_SPSK_SETUP_VERSION,
                             .validate_id_call_back = cn_coap_sessions_choose_key,
                             .id_call_back_arg = &server->sessions};
    cn_err err;

    err = cn_coap_sessions_init(&server->sessions, &server->config);
    if (err)
        return err;
    // libcoap requires a default key. choose_key answers for every identity, so it is never used.
    keys.psk_info.key = server->sessions.key_view;
    keys.psk_info.hint = (coap_bin_const_t){.length = 5, .s = (const uint8_t *)"cairn"};
    cn_coap_start();
    server->coap = coap_new_context(NULL);
    if (!server->coap)
        return CN_ENOMEM;
    coap_context_set_app_data(server->coap, server);
    coap_context_set_block_mode(server->coap, 0); // Cairn's own chunks replace CoAP's blocks
    coap_context_set_session_timeout(server->coap, IDLE_S);
    coap_context_set_max_handshake_sessions(server->coap, config->handshakes_max);
    // A session is admitted by its first request, and each board has at most one that has made none
    // (cn_coap_sessions_tidy). Beyond this number libcoap drops the session that has been
    // silent the longest.
    coap_context_set_max_idle_sessions(server->coap, config->sessions_max + config->handshakes_max);
    coap_register_event_handler(server->coap, on_event);
    if (!coap_context_set_psk2(server->coap, &keys))
        return CN_ENOTSUP;
    err = add_resources(server);
    for (uint32_t i = 0; !err && i < config->listen_count; i++)
        err = listen_at(server, config->listen[i]);
    return err;
}

cn_err cn_coap_server_open(const struct cn_coap_server_config *config,
                           struct cn_coap_server **server)
{
    struct cn_coap_server *opened = calloc(1, sizeof(*opened));
    cn_err err;

    if (!opened)
        return CN_ENOMEM;
    opened->config = *config;
    opened->config.listen = NULL;
    snprintf(opened->where, sizeof(opened->where), "%s",
             config->listen_count ? config->listen[0] : "");
    cn_coap_allow_files(config->sessions_max);
    err = set_up(opened, config);
    if (err) {
        cn_coap_server_close(opened);
        return err;
    }
    *server = opened;
    return CN_OK;
}

void cn_coap_server_close(struct cn_coap_server *server)
{
    if (!server)
        return;
    server->ends = true;
    if (server->coap)
        coap_free_context(server->coap);
    cn_coap_sessions_deinit(&server->sessions);
    free(server);
}

// Sends the notifications that are due. libcoap calls on_request with the first request of each
// observer. It would do the same between the events of its next turn, but there nobody could tell
// such a call from a request that has arrived.
static void send_notifications(struct cn_coap_server *server)
{
    server->notifying = true;
    coap_check_notify(server->coap);
    server->notifying = false;
}

cn_err cn_coap_server_step(struct cn_coap_server *server, uint32_t timeout_ms)
{
    cn_coap_sessions_tidy(&server->sessions);
    send_notifications(server);
    if (cn_coap_process(server->coap, server->where, timeout_ms))
        return CN_EIO;
    cn_coap_sessions_tidy(&server->sessions);
    return CN_OK;
}

int cn_coap_server_descriptor(const struct cn_coap_server *server)
{
    return coap_context_get_coap_fd(server->coap);
}

void cn_coap_server_notify(struct cn_coap_server *server, const char *prefix)
{
    coap_str_const_t path = {.length = strlen(prefix), .s = (const uint8_t *)prefix};
    coap_resource_t *resource = coap_get_resource_from_uri_path(server->coap, &path);

    if (resource)
        coap_resource_notify_observers(resource, NULL);
}

void cn_coap_server_drop(struct cn_coap_server *server, const char *board)
{
    cn_coap_sessions_drop(&server->sessions, board);
}

void cn_coap_server_board_bytes(const struct cn_coap_server *server, const char *board,
                                struct cn_link_bytes *in, struct cn_link_bytes *out)
{
    const struct cn_coap_board *found = cn_coap_sessions_find(&server->sessions, board);

    *in = found ? found->in : (struct cn_link_bytes){0};
    *out = found ? found->out : (struct cn_link_bytes){0};
}

void cn_coap_server_stats(const struct cn_coap_server *server, struct cn_coap_server_stats *stats)
{
    *stats = server->stats;
    stats->sessions = server->sessions.count;
    memcpy(stats->handshakes, server->sessions.handshakes, sizeof(stats->handshakes));
}
