// fuzz_http.c - bytes of a client of the HTTP server (transport/http/http_server.h).
//
// The first byte says where the client's first send ends; the server then has its turn. Whatever
// comes, the server answers with a known status or closes, and only GET and HEAD succeed.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/port/crypto.h"
#include "transport/http/http_server.h"

#define TOKEN "0123456789abcdef"
#define TURNS 8
#define SENT_MAX 65536 // bytes of an input that are sent; less than a socket's buffer

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static cn_err produce(void *context, const struct cn_http_request *request,
                      struct cn_http_answer *answer)
{
    (void)context;
    if (request->name[0] && !cn_name_valid(request->name))
        abort();
    return cn_buffer_append(&answer->body, "body", 4);
}

static const struct cn_http_route routes[] = {
    {.path = "/", .type = "text/html", .open = true, .fixed = "<html>", .fixed_size = 6},
    {.path = "/v1/state", .type = "text/plain", .parameter = "since", .produce = produce},
    {.path = "/v1/board", .named = true, .type = "text/plain", .produce = produce},
    {.path = "/open", .type = "text/plain", .open = true, .fresh_ms = 1000, .produce = produce},
};

static struct cn_http_server *server;
static uint64_t now_ms = 1000000;

static void start(void)
{
    uint8_t token[CN_DIGEST_SIZE];
    struct cn_http_config config = {
        .routes = routes,
        .route_count = sizeof(routes) / sizeof(routes[0]),
    };
    cn_log_set_level(CN_LOG_ERROR);
    cn_crypto_digest(TOKEN, strlen(TOKEN), token);
    cn_http_rules_set(&config.rules, "127.0.0.1:80", "gateway.example", token);
    if (cn_http_open(&config, &server))
        abort();
}

static void turn(int client, char *answer, size_t *length, size_t most)
{
    for (int i = 0; i < TURNS; i++) {
        if (cn_http_step(server, now_ms))
            abort();
        ssize_t count = recv(client, answer + *length, most - *length, 0);
        if (count > 0)
            *length += (size_t)count;
    }
}

static bool is_known(int status)
{
    static const int known[] = {100, 200, 304, 400, 401, 403, 404, 405, 411, 413,
                                414, 417, 421, 429, 431, 500, 501, 503, 505};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i] == status)
            return true;
    return false;
}

static void check(const char *answer, size_t length, const uint8_t *sent, size_t size)
{
    bool asked = memmem(sent, size, "GET ", 4) || memmem(sent, size, "HEAD ", 5);
    if (length < 12)
        return;
    if (strncmp(answer, "HTTP/1.", 7) != 0 || !is_known(atoi(answer + 9)))
        abort();
    if (atoi(answer + 9) == 200 && !asked)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char answer[1 << 20];
    size_t length = 0, first;
    int pair[2];

    if (!server)
        start();
    if (size < 2 || size > SENT_MAX)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) ||
        cn_http_adopt(server, pair[1]))
        abort();
    first = (size_t)data[0] * (size - 1) / 255;
    (void)send(pair[0], data + 1, first, MSG_NOSIGNAL);
    turn(pair[0], answer, &length, sizeof(answer) - 1);
    (void)send(pair[0], data + 1 + first, size - 1 - first, MSG_NOSIGNAL);
    turn(pair[0], answer, &length, sizeof(answer) - 1);
    answer[length] = '\0';
    check(answer, length, data + 1, size - 1);
    close(pair[0]);
    now_ms += 1000; // the limit on answers that are made does not fill up
    length = 0;
    for (int i = 0; i < TURNS && cn_http_connections(server); i++)
        if (cn_http_step(server, now_ms))
            abort();
    if (cn_http_connections(server))
        abort();
    return 0;
}
