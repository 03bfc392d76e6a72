// web_server.c - the HTTP server with made-up answers, and clients over socket pairs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/port/crypto.h"
#include "tests/unit/web_server.h"

unsigned web_produced;

static cn_err produce_count(void *context, const struct cn_http_request *request,
                            struct cn_http_answer *answer)
{
    char text[128];
    (void)context;
    web_produced++;
    int length =
        snprintf(text, sizeof(text), "%s %llu", request->name, (unsigned long long)request->number);
    return cn_buffer_append(&answer->body, text, (size_t)length);
}

// Takes more than all time that answers may take at once.
static cn_err produce_slowly(void *context, const struct cn_http_request *request,
                             struct cn_http_answer *answer)
{
    struct timespec left = {.tv_nsec = 450000000};
    while (nanosleep(&left, &left) != 0)
        ;
    return produce_count(context, request, answer);
}

static cn_err produce_large(void *context, const struct cn_http_request *request,
                            struct cn_http_answer *answer)
{
    (void)context;
    (void)request;
    return cn_buffer_resize(&answer->body, 3u << 20);
}

static cn_err produce_nothing(void *context, const struct cn_http_request *request,
                              struct cn_http_answer *answer)
{
    (void)context;
    (void)answer;
    return strcmp(request->name, "unknown") == 0 ? CN_ENOTFOUND : CN_ENOSPC;
}

static cn_err produce_reasons(void *context, const struct cn_http_request *request,
                              struct cn_http_answer *answer)
{
    (void)context;
    (void)request;
    answer->status = 503;
    return cn_buffer_append(&answer->body, "disk\n", 5);
}

static const struct cn_http_route routes[] = {
    {.path = "/", .type = "text/html", .open = true, .fixed = "<html>", .fixed_size = 6},
    {.path = "/count", .type = "text/plain", .parameter = "from", .produce = produce_count},
    {.path = "/fresh", .type = "text/plain", .fresh_ms = 1000, .produce = produce_count},
    {.path = "/numbers",
     .type = "text/plain",
     .parameter = "from",
     .fresh_ms = 1000,
     .produce = produce_count},
    {.path = "/slow", .type = "text/plain", .parameter = "from", .produce = produce_slowly},
    {.path = "/board", .named = true, .type = "text/plain", .produce = produce_count},
    {.path = "/failing", .named = true, .type = "text/plain", .produce = produce_nothing},
    {.path = "/ready", .type = "text/plain", .produce = produce_reasons},
    {.path = "/large", .type = "text/plain", .produce = produce_large},
};

struct web_server web_open(const char *names, const char *token)
{
    struct web_server web = {.now_ms = 1000000};
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_http_config config = {
        .routes = routes,
        .route_count = sizeof(routes) / sizeof(routes[0]),
    };
    if (token)
        cn_crypto_digest(token, strlen(token), digest);
    cn_http_rules_set(&config.rules, "127.0.0.1:8684", names, token ? digest : NULL);
    assert_int_equal(cn_http_open(&config, &web.server), CN_OK);
    assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    return web;
}

void web_close(struct web_server *web)
{
    cn_http_close(web->server);
    free(web->answer);
}

int web_join(struct web_server *web)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(cn_http_adopt(web->server, pair[1]), CN_OK);
    return pair[0];
}

void web_put(int client, const char *text)
{
    assert_int_equal(send(client, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

bool web_collect(struct web_server *web, int client)
{
    bool closed = false;
    free(web->answer);
    web->answer = calloc(1, (4u << 20) + 1);
    web->size = 0;
    assert_non_null(web->answer);
    for (int quiet = 0; quiet < STEPS && !closed; quiet++) {
        assert_int_equal(cn_http_step(web->server, web->now_ms), CN_OK);
        ssize_t count = recv(client, web->answer + web->size, (4u << 20) - web->size, 0);
        closed = count == 0 || (count < 0 && errno != EAGAIN);
        if (count > 0) {
            web->size += (size_t)count;
            quiet = 0;
        }
    }
    return closed;
}

int web_ask(struct web_server *web, const char *text)
{
    int client = web_join(web), status = 0;
    web_put(client, text);
    web_collect(web, client);
    close(client);
    assert_int_equal(cn_http_step(web->server, web->now_ms), CN_OK);
    if (sscanf(web->answer, "HTTP/1.1 %d", &status) != 1)
        (void)sscanf(web->answer, "HTTP/1.0 %d", &status);
    return status;
}

bool web_says(const struct web_server *web, const char *text)
{
    return strstr(web->answer, text) != NULL;
}
