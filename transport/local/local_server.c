#include "transport/local/local_server.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE 4096
#define ACCEPTS 16 // most connections that are accepted in a step

struct connection {
    int descriptor; // -1: free
    struct cn_local_peer peer;
    struct cn_buffer in, out;
    size_t sent;       // bytes of out
    uint64_t heard_ms; // clock; when a line was complete, or bytes of an answer were taken
    bool ends;         // closed once the answer is sent
};

struct cn_local_server {
    struct cn_local_config config;
    struct connection connections[CN_LOCAL_SOCKETS][CN_LOCAL_CONNECTIONS];
};

static void hang_up(struct connection *connection)
{
    if (connection->descriptor >= 0)
        close(connection->descriptor);
    cn_buffer_deinit(&connection->in);
    cn_buffer_deinit(&connection->out);
    *connection = (struct connection){.descriptor = -1};
}

cn_err cn_local_server_open(const struct cn_local_config *config, struct cn_local_server **server)
{
    *server = calloc(1, sizeof(**server));
    if (!*server) {
        for (size_t i = 0; i < config->count; i++)
            close(config->listening[i]);
        return CN_ENOMEM;
    }
    (*server)->config = *config;
    for (size_t s = 0; s < CN_LOCAL_SOCKETS; s++)
        for (size_t i = 0; i < CN_LOCAL_CONNECTIONS; i++)
            (*server)->connections[s][i].descriptor = -1;
    return CN_OK;
}

void cn_local_server_close(struct cn_local_server *server)
{
    if (!server)
        return;
    for (size_t s = 0; s < server->config.count; s++) {
        close(server->config.listening[s]);
        for (size_t i = 0; i < CN_LOCAL_CONNECTIONS; i++)
            hang_up(&server->connections[s][i]);
    }
    free(server);
}

// --- accepting ---

static struct connection *find_free(struct cn_local_server *server, size_t socket_number)
{
    for (size_t i = 0; i < CN_LOCAL_CONNECTIONS; i++)
        if (server->connections[socket_number][i].descriptor < 0)
            return &server->connections[socket_number][i];
    return NULL;
}

// Closes a connection that is one too many, with an answer if the socket's buffer has room for it.
static void turn_away(const struct cn_local_server *server, int descriptor)
{
    const char *text = server->config.too_many;
    if (send(descriptor, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        (void)send(descriptor, "\n", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(descriptor);
}

static void welcome(struct connection *connection, int descriptor, uint64_t now_ms)
{
    struct ucred peer = {.uid = UINT32_MAX};
    socklen_t size = sizeof(peer);
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        peer.pid = 0;
    connection->descriptor = descriptor;
    connection->peer = (struct cn_local_peer){.uid = peer.uid, .pid = peer.pid};
    connection->heard_ms = now_ms;
    cn_buffer_init(&connection->in, CN_LOCAL_LINE_MAX + 1 + READ_SIZE);
    cn_buffer_init(&connection->out, CN_LOCAL_ANSWER_MAX);
}

static void accept_all(struct cn_local_server *server, size_t socket_number, uint64_t now_ms)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int descriptor = accept4(server->config.listening[socket_number], NULL, NULL,
                                 SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (descriptor < 0)
            return;
        struct connection *connection = find_free(server, socket_number);
        if (connection)
            welcome(connection, descriptor, now_ms);
        else
            turn_away(server, descriptor);
    }
}

// --- answering ---

// Sends what can be sent. Returns false when the connection is over.
static bool flush_out(struct connection *connection, uint64_t now_ms)
{
    while (connection->sent < connection->out.size) {
        ssize_t count = send(connection->descriptor, connection->out.data + connection->sent,
                             connection->out.size - connection->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        connection->sent += (size_t)count;
        connection->heard_ms = now_ms;
    }
    cn_buffer_deinit(&connection->out); // an answer may have been large
    cn_buffer_init(&connection->out, CN_LOCAL_ANSWER_MAX);
    connection->sent = 0;
    return !connection->ends;
}

// Reads until a line is complete or nothing is left. Returns false when the client has gone or
// memory is short.
static bool fill_in(struct connection *connection)
{
    char bytes[READ_SIZE];
    while (connection->in.size <= CN_LOCAL_LINE_MAX &&
           !(connection->in.size && memchr(connection->in.data, '\n', connection->in.size))) {
        ssize_t count = recv(connection->descriptor, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (count < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        if (count == 0 || cn_buffer_append(&connection->in, bytes, (size_t)count))
            return false;
    }
    return true;
}

static void refuse_line(const struct cn_local_server *server, struct connection *connection)
{
    const char *text = server->config.too_long;
    connection->ends = true;
    if (cn_buffer_append(&connection->out, text, strlen(text)) ||
        cn_buffer_append(&connection->out, "\n", 1))
        cn_buffer_deinit(&connection->out);
}

// Answers the first line, if it is complete. Returns false when memory is short.
static bool answer_line(const struct cn_local_server *server, size_t socket_number,
                        struct connection *connection, uint64_t now_ms)
{
    struct cn_buffer *in = &connection->in;
    char *end = in->size ? memchr(in->data, '\n', in->size) : NULL;
    size_t size = end ? (size_t)(end - (char *)in->data) : in->size;
    if (size > CN_LOCAL_LINE_MAX) {
        refuse_line(server, connection);
        return true;
    }
    if (!end)
        return true;
    *end = '\0';
    connection->heard_ms = now_ms;
    server->config.handle(server->config.context, socket_number, &connection->peer,
                          (const char *)in->data, size, &connection->out);
    memmove(in->data, in->data + size + 1, in->size - size - 1);
    return cn_buffer_resize(in, in->size - size - 1) == CN_OK &&
           cn_buffer_append(&connection->out, "\n", 1) == CN_OK;
}

static bool serve(const struct cn_local_server *server, size_t socket_number,
                  struct connection *connection, uint64_t now_ms)
{
    if (now_ms - connection->heard_ms > CN_LOCAL_IDLE_MS)
        return false;
    if (connection->out.size)
        return flush_out(connection, now_ms);
    if (!fill_in(connection) || !answer_line(server, socket_number, connection, now_ms))
        return false;
    return connection->out.size == 0 || flush_out(connection, now_ms);
}

void cn_local_server_step(struct cn_local_server *server, uint64_t now_ms)
{
    for (size_t s = 0; s < server->config.count; s++) {
        for (size_t i = 0; i < CN_LOCAL_CONNECTIONS; i++) {
            struct connection *connection = &server->connections[s][i];
            if (connection->descriptor >= 0 && !serve(server, s, connection, now_ms))
                hang_up(connection);
        }
        accept_all(server, s, now_ms);
    }
}
