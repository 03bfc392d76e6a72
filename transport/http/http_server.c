#include "transport/http/http_server.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "transport/http/http_answers.h"
#include "transport/http/http_listen.h"

// Memory of a connection: the head of a request and the head of an answer.
#define MEMORY_MAX (2 * CN_HTTP_HEAD_MAX)
#define STRICTNESS 2   // refuse what only lenient servers accept
#define LISTEN_MAX 600 // bytes of "unix:PATH"
#define IDLES_MS 1000  // a connection without a request for this time idles
#define ROOM_MS 20     // between two looks whether the time that answers share has some left

struct connection {
    struct cn_http_server *server;
    int descriptor;
    bool used;
    bool busy;                       // a request is being answered
    uint32_t answered;               // requests that were answered
    uint64_t idle_ms;                // clock; since when it waits, or is answered
    uint64_t deadline_ms;            // clock; the connection is closed then
    char target[CN_HTTP_TARGET_MAX]; // target of the request that is being read
    bool target_fits;
    struct MHD_Connection *waiting; // suspended; NULL: it is not
    // Of a request that waits for its turn in the time that answers share; 0: it does not.
    uint64_t place;     // smaller ones come first
    uint64_t queued_ms; // clock; since when
};

struct cn_http_server {
    struct cn_http_config config;
    char listen[LISTEN_MAX]; // "": none
    struct MHD_Daemon *daemon;
    int descriptor;
    uint64_t now_ms;         // clock of the current step
    bool made;               // an answer was made in this step
    uint64_t places;         // places in the queue that were given out
    struct connection *turn; // first of the queue when this step began; NULL: it was empty
    struct cn_http_answers answers;
    struct cn_log_limit refused; // limits lines about wrong tokens
    struct connection connections[CN_HTTP_CONNECTIONS];
};

// --- what the library calls ---

static struct connection *connection_of(struct MHD_Connection *library)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(library, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void note_connection(void *context, struct MHD_Connection *library, void **socket_context,
                            enum MHD_ConnectionNotificationCode code)
{
    struct cn_http_server *server = context;
    struct connection *connection = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (connection)
            connection->used = false;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(library, MHD_CONNECTION_INFO_CONNECTION_FD);
    for (size_t i = 0; i < CN_HTTP_CONNECTIONS; i++) {
        connection = &server->connections[i];
        if (connection->used)
            continue;
        *connection = (struct connection){.server = server, .descriptor = -1, .used = true};
        connection->descriptor = info ? info->connect_fd : -1;
        connection->deadline_ms = server->now_ms + CN_HTTP_HEAD_MS;
        connection->idle_ms = server->now_ms;
        *socket_context = connection;
        return;
    }
}

// libmicrohttpd would decode the path and split the query; the raw target is what is judged.
static void *note_target(void *context, const char *target, struct MHD_Connection *library)
{
    struct connection *connection = connection_of(library);
    (void)context;
    if (connection) {
        int length = snprintf(connection->target, sizeof(connection->target), "%s", target);
        connection->target_fits = length >= 0 && (size_t)length < sizeof(connection->target);
    }
    return NULL;
}

static void note_end(void *context, struct MHD_Connection *library, void **seen,
                     enum MHD_RequestTerminationCode code)
{
    struct cn_http_server *server = context;
    struct connection *connection = connection_of(library);
    (void)seen;
    (void)code;
    if (connection) {
        connection->busy = false;
        connection->answered++;
        connection->idle_ms = server->now_ms;
    }
}

static size_t keep_encoded(void *context, struct MHD_Connection *library, char *text)
{
    (void)context;
    (void)library;
    return strlen(text);
}

struct headers {
    struct cn_http_head head;
    const char *known; // If-None-Match
};

static void take_once(const char **slot, const char *value, bool *repeated)
{
    if (*slot)
        *repeated = true;
    *slot = value ? value : "";
}

static enum MHD_Result take_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    struct headers *headers = context;
    struct cn_http_head *head = &headers->head;
    (void)kind;
    if (strcasecmp(name, "Host") == 0)
        take_once(&head->host, value, &head->repeated);
    else if (strcasecmp(name, "Origin") == 0)
        take_once(&head->origin, value, &head->repeated);
    else if (strcasecmp(name, "Authorization") == 0)
        take_once(&head->authorization, value, &head->repeated);
    else if (strcasecmp(name, "Sec-Fetch-Site") == 0)
        take_once(&head->site, value, &head->repeated);
    else if (strcasecmp(name, "If-None-Match") == 0)
        headers->known = value;
    else if (strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0)
        head->has_body = true;
    return MHD_YES;
}

static void read_headers(struct MHD_Connection *library, const char *method, const char *target,
                         struct headers *headers)
{
    *headers = (struct headers){.head = {.method = method, .target = target}};
    MHD_get_connection_values(library, MHD_HEADER_KIND, take_header, headers);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(library, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    headers->head.size = info ? info->header_size : 0;
}

static void note_refusal(struct cn_http_server *server, unsigned status)
{
    uint64_t count;
    if (status == MHD_HTTP_UNAUTHORIZED &&
        cn_log_limit_due(&server->refused, server->now_ms, &count))
        cn_log(CN_LOG_WARN, "http",
               "%" PRIu64 " request%s without the token of http.token_file, or with another one",
               count, count == 1 ? "" : "s");
}

// Tells whether a request that has a place in the queue, or takes one now, is next.
static bool is_next(const struct cn_http_server *server, const struct connection *connection)
{
    if (server->turn && server->turn != connection)
        return false;
    return cn_http_answers_room(&server->answers, server->now_ms);
}

static bool is_overdue(const struct cn_http_server *server, const struct connection *connection)
{
    return connection->place && server->now_ms - connection->queued_ms >= CN_HTTP_TURN_MS;
}

// Only one answer is made in a step, so that the caller's loop waits for no more than that. Returns
// true when the request was put off to a later step.
static bool put_off(struct cn_http_server *server, struct MHD_Connection *library,
                    const struct cn_http_route *route, const struct cn_http_request *request,
                    struct connection *connection)
{
    bool shares = cn_http_answers_share(route);
    // A request whose turn did not come in time is refused, unless there is room for it by now.
    if (cn_http_answers_has(&server->answers, route, request, server->now_ms) ||
        (shares && is_overdue(server, connection) &&
         !cn_http_answers_room(&server->answers, server->now_ms))) {
        connection->place = 0;
        return false;
    }
    if (!server->made && (!shares || is_next(server, connection))) {
        server->made = true;
        connection->place = 0;
        return false;
    }
    if (shares && !connection->place) {
        connection->place = ++server->places;
        connection->queued_ms = server->now_ms;
    }
    connection->waiting = library;
    MHD_suspend_connection(library);
    return true;
}

// Called with a complete head, and again after the (empty) body. A request that is refused is
// answered at once, so its body is never read.
static enum MHD_Result handle(void *context, struct MHD_Connection *library, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **seen)
{
    struct cn_http_server *server = context;
    struct connection *connection = connection_of(library);
    struct cn_http_request request;
    struct headers headers;
    unsigned status = 414;
    const char *why = "the path is too long";
    const struct cn_http_route *route = NULL;
    (void)url;
    (void)version;
    (void)upload;
    if (!connection || *upload_size)
        return MHD_NO;
    read_headers(library, method, connection->target, &headers);
    if (connection->target_fits)
        route = cn_http_judge(&server->config.rules, server->config.routes,
                              server->config.route_count, &headers.head, &request, &status, &why);
    if (route && !*seen) {
        *seen = connection;
        return MHD_YES;
    }
    bool trusted = cn_http_is_trusted(&server->config.rules, headers.head.authorization);
    connection->deadline_ms = server->now_ms + (trusted ? CN_HTTP_IDLE_MS : CN_HTTP_HEAD_MS);
    connection->idle_ms = server->now_ms;
    connection->busy = true;
    if (route && put_off(server, library, route, &request, connection))
        return MHD_YES;
    if (route)
        return cn_http_answers_queue(&server->answers, library, route, server->config.context,
                                     &request, headers.known, server->now_ms);
    note_refusal(server, status);
    return cn_http_answers_refuse(library, status, why);
}

// --- opening, closing ---

static cn_err start(struct cn_http_server *server, int listening)
{
    const struct MHD_OptionItem end = {MHD_OPTION_END, 0, NULL};
    const struct MHD_OptionItem socket[] = {{MHD_OPTION_LISTEN_SOCKET, listening, NULL}, end};
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_THREAD_SAFETY | MHD_ALLOW_SUSPEND_RESUME;
    if (listening < 0)
        flags |= MHD_USE_NO_LISTEN_SOCKET;
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, server, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CN_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(CN_HTTP_IDLE_MS / 1000),
        MHD_OPTION_NOTIFY_CONNECTION, note_connection, server, MHD_OPTION_URI_LOG_CALLBACK,
        note_target, server, MHD_OPTION_UNESCAPE_CALLBACK, keep_encoded, server,
        MHD_OPTION_CLIENT_DISCIPLINE_LVL, STRICTNESS, MHD_OPTION_NOTIFY_COMPLETED, note_end, server,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)(server->config.local ? 0 : CN_HTTP_PER_ADDRESS), MHD_OPTION_ARRAY,
        listening < 0 ? &end : socket, MHD_OPTION_END);
    if (!server->daemon)
        return CN_EIO;
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return CN_ENOTSUP;
    server->descriptor = info->epoll_fd;
    return CN_OK;
}

cn_err cn_http_open(const struct cn_http_config *config, struct cn_http_server **server)
{
    int listening = -1;
    *server = NULL;
    if (config->route_count > CN_HTTP_ROUTES_MAX)
        return CN_ERANGE;
    struct cn_http_server *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->config = *config;
    opened->config.listen = NULL;
    cn_err err = config->listen ? cn_http_listen(config->listen, &listening) : CN_OK;
    if (!err && config->listen)
        snprintf(opened->listen, sizeof(opened->listen), "%s", config->listen);
    if (!err) {
        err = start(opened, listening);
        if (err && !opened->daemon && listening >= 0)
            close(listening);
    }
    if (err) {
        cn_http_close(opened);
        return err;
    }
    *server = opened;
    return CN_OK;
}

static void resume(struct connection *connection)
{
    struct MHD_Connection *waiting = connection->waiting;
    connection->waiting = NULL;
    if (waiting)
        MHD_resume_connection(waiting);
}

// Resumes requests whose turn may have come.
static void resume_next(struct cn_http_server *server)
{
    bool room = cn_http_answers_room(&server->answers, server->now_ms);
    server->turn = NULL;
    for (size_t i = 0; i < CN_HTTP_CONNECTIONS; i++) {
        struct connection *connection = &server->connections[i];
        if (!connection->used || !connection->waiting)
            continue;
        if (!connection->place || (!room && is_overdue(server, connection)))
            resume(connection);
        else if (!server->turn || connection->place < server->turn->place)
            server->turn = connection;
    }
    if (server->turn && room)
        resume(server->turn);
}

void cn_http_close(struct cn_http_server *server)
{
    if (!server)
        return;
    // The library may have any number of suspended connections, but none when it stops.
    for (size_t i = 0; i < CN_HTTP_CONNECTIONS; i++)
        resume(&server->connections[i]);
    if (server->daemon)
        MHD_stop_daemon(server->daemon); // closes the listening socket, too
    cn_http_answers_deinit(&server->answers);
    cn_http_unlisten(server->listen);
    free(server);
}

// --- running ---

int cn_http_descriptor(const struct cn_http_server *server)
{
    return server->descriptor;
}

// Returns when the connection needs a step.
static uint64_t due_ms(const struct cn_http_server *server, const struct connection *connection,
                       uint64_t now_ms)
{
    if (!connection->waiting)
        return connection->deadline_ms;
    if (!connection->place || cn_http_answers_room(&server->answers, now_ms))
        return now_ms;
    return now_ms + ROOM_MS;
}

uint32_t cn_http_wait_ms(struct cn_http_server *server, uint32_t most_ms, uint64_t now_ms)
{
    uint64_t wait_ms = most_ms, library_ms;
    if (MHD_get_timeout64(server->daemon, &library_ms) == MHD_YES && library_ms < wait_ms)
        wait_ms = library_ms;
    for (size_t i = 0; i < CN_HTTP_CONNECTIONS; i++) {
        const struct connection *connection = &server->connections[i];
        uint64_t at_ms = due_ms(server, connection, now_ms);
        if (connection->used && at_ms < now_ms + wait_ms)
            wait_ms = at_ms > now_ms ? at_ms - now_ms : 0;
    }
    return (uint32_t)wait_ms;
}

// Ends connections whose time is over. The library sees the end of the stream and closes them.
static void end_late(struct cn_http_server *server)
{
    for (size_t i = 0; i < CN_HTTP_CONNECTIONS; i++) {
        struct connection *connection = &server->connections[i];
        if (!connection->used || server->now_ms < connection->deadline_ms)
            continue;
        connection->deadline_ms = UINT64_MAX;
        shutdown(connection->descriptor, SHUT_RDWR);
    }
}

static bool idles(const struct cn_http_server *server, const struct connection *connection)
{
    return !connection->busy && server->now_ms - connection->idle_ms >= IDLES_MS;
}

// Tells which of two connections makes room first: one that idles, else the one that had more
// answers, so that newcomers get theirs. Of two that had as many, one that is being answered again
// goes last, else the one that has waited longest goes first.
static bool goes_before(const struct cn_http_server *server, const struct connection *a,
                        const struct connection *b)
{
    if (idles(server, a) != idles(server, b))
        return idles(server, a);
    if (!idles(server, a) && a->answered != b->answered)
        return a->answered > b->answered;
    if (a->answered && a->busy != b->busy)
        return !a->busy;
    return a->idle_ms < b->idle_ms;
}

// Makes room when nobody could come in any more.
static void end_idle(struct cn_http_server *server)
{
    struct connection *first = &server->connections[0];
    for (size_t i = 0; i < CN_HTTP_CONNECTIONS; i++) {
        struct connection *connection = &server->connections[i];
        if (!connection->used || connection->deadline_ms == UINT64_MAX)
            return; // there is room, or there soon will be
        if (goes_before(server, connection, first))
            first = connection;
    }
    first->deadline_ms = UINT64_MAX;
    shutdown(first->descriptor, SHUT_RDWR);
}

cn_err cn_http_step(struct cn_http_server *server, uint64_t now_ms)
{
    server->now_ms = now_ms;
    server->made = false;
    end_late(server);
    end_idle(server);
    resume_next(server);
    return MHD_run(server->daemon) == MHD_YES ? CN_OK : CN_EIO;
}

cn_err cn_http_adopt(struct cn_http_server *server, int descriptor)
{
    struct sockaddr address = {.sa_family = AF_UNIX};
    return MHD_add_connection(server->daemon, descriptor, &address, sizeof(address)) == MHD_YES
               ? CN_OK
               : CN_EAGAIN;
}

uint32_t cn_http_connections(const struct cn_http_server *server)
{
    uint32_t count = 0;
    for (size_t i = 0; i < CN_HTTP_CONNECTIONS; i++)
        count += server->connections[i].used;
    return count;
}
