// The HTTP server over socket pairs: what it answers, and what hostile clients can do.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "tests/support/free_address.h"
#include "transport/http/http_server.h"
#include "transport/http/http_token.h"

#define TOKEN "0123456789abcdef0123456789abcdef"
#define HOST "Host: localhost:8684\r\n"
#define STEPS 200 // more than any exchange here takes

static unsigned produced;

static cn_err produce_count(void *context, const struct cn_http_request *request,
                            struct cn_http_answer *answer)
{
    char text[128];
    (void)context;
    produced++;
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

struct web_server {
    struct cn_http_server *server;
    uint64_t now_ms;
    char *answer; // what the last exchange read
    size_t size;
};

static struct web_server open_web(const char *names, const char *token)
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

static void close_web(struct web_server *web)
{
    cn_http_close(web->server);
    free(web->answer);
}

static int join(struct web_server *web)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(cn_http_adopt(web->server, pair[1]), CN_OK);
    return pair[0];
}

// Steps the server and collects what it sends until it has nothing to do. Returns whether the
// server closed the connection.
static bool collect(struct web_server *web, int client)
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

static void put(int client, const char *text)
{
    assert_int_equal(send(client, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

// Sends a request over a connection of its own. Returns the status of the answer; 0: none.
static int ask(struct web_server *web, const char *text)
{
    int client = join(web), status = 0;
    put(client, text);
    collect(web, client);
    close(client);
    assert_int_equal(cn_http_step(web->server, web->now_ms), CN_OK);
    if (sscanf(web->answer, "HTTP/1.1 %d", &status) != 1)
        (void)sscanf(web->answer, "HTTP/1.0 %d", &status);
    return status;
}

static bool says(const struct web_server *web, const char *text)
{
    return strstr(web->answer, text) != NULL;
}

static void a_known_path_is_answered_with_all_headers(void **state)
{
    struct web_server web = open_web("", NULL);
    (void)state;
    assert_int_equal(ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(says(&web, "\r\n\r\n<html>"));
    assert_true(says(&web, "Content-Security-Policy: default-src 'none'; script-src 'self'"));
    assert_true(says(&web, "frame-ancestors 'none'"));
    assert_true(says(&web, "X-Content-Type-Options: nosniff\r\n"));
    assert_true(says(&web, "Referrer-Policy: no-referrer\r\n"));
    assert_true(says(&web, "Cross-Origin-Resource-Policy: same-origin\r\n"));
    assert_true(says(&web, "Cache-Control: no-cache\r\n"));
    assert_false(says(&web, "Access-Control"));
    assert_int_equal(ask(&web, "GET /count HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(says(&web, "Cache-Control: no-store\r\n"));
    assert_int_equal(ask(&web, "GET /ready HTTP/1.1\r\n" HOST "\r\n"), 503);
    assert_true(says(&web, "\r\n\r\ndisk\n"));
    close_web(&web);
}

static void head_has_the_length_and_no_body(void **state)
{
    struct web_server web = open_web("", NULL);
    (void)state;
    assert_int_equal(ask(&web, "HEAD / HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(says(&web, "Content-Length: 6\r\n"));
    assert_false(says(&web, "<html>"));
    close_web(&web);
}

static void an_answer_that_did_not_change_is_304(void **state)
{
    struct web_server web = open_web("", NULL);
    char request[256], etag[64];
    (void)state;
    assert_int_equal(ask(&web, "GET /count HTTP/1.1\r\n" HOST "\r\n"), 200);
    const char *found = strstr(web.answer, "ETag: ");
    assert_non_null(found);
    snprintf(etag, sizeof(etag), "%.18s", found + 6);
    snprintf(request, sizeof(request),
             "GET /count HTTP/1.1\r\n" HOST "If-None-Match: \"other\", %s\r\n\r\n", etag);
    assert_int_equal(ask(&web, request), 304);
    assert_true(says(&web, etag));
    assert_true(says(&web, "Content-Security-Policy"));
    snprintf(request, sizeof(request),
             "GET /count?from=1 HTTP/1.1\r\n" HOST "If-None-Match: %s\r\n\r\n", etag);
    assert_int_equal(ask(&web, request), 200);
    close_web(&web);
}

static void a_fresh_answer_is_made_once(void **state)
{
    struct web_server web = open_web("", NULL);
    (void)state;
    produced = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(produced, 1);
    web.now_ms += 1000;
    assert_int_equal(ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(produced, 2);
    close_web(&web);
}

static void a_number_has_one_answer_however_it_is_written(void **state)
{
    struct web_server web = open_web("", NULL);
    (void)state;
    produced = 0;
    assert_int_equal(ask(&web, "GET /numbers HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(ask(&web, "GET /numbers?from=0 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(ask(&web, "GET /numbers?from=000 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(produced, 1);
    assert_int_equal(ask(&web, "GET /numbers?from=01 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(says(&web, "\r\n\r\n 1"));
    assert_int_equal(produced, 2);
    close_web(&web);
}

static void the_only_answer_of_a_path_keeps_its_place(void **state)
{
    struct web_server web = open_web("", NULL);
    char request[128];
    (void)state;
    produced = 0;
    assert_int_equal(ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    for (int i = 0; i < 100; i++) {
        snprintf(request, sizeof(request), "GET /numbers?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        web.now_ms++;
        assert_int_equal(ask(&web, request), 200);
    }
    assert_int_equal(produced, 101);
    assert_int_equal(ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(produced, 101);
    close_web(&web);
}

static void answers_that_take_long_are_charged_for_it(void **state)
{
    struct web_server web = open_web("", NULL);
    (void)state;
    assert_int_equal(ask(&web, "GET /slow?from=1 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(ask(&web, "GET /slow?from=2 HTTP/1.1\r\n" HOST "\r\n"), 429);
    assert_int_equal(ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    web.now_ms += 600000;
    assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(ask(&web, "GET /slow?from=2 HTTP/1.1\r\n" HOST "\r\n"), 200);
    close_web(&web);
}

static void a_step_makes_one_answer_and_the_next_one_goes_on(void **state)
{
    struct web_server web = open_web("", NULL);
    int clients[8];
    char request[128];
    (void)state;
    for (int i = 0; i < 8; i++) {
        snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        clients[i] = join(&web);
        put(clients[i], request);
    }
    produced = 0;
    for (unsigned i = 0; i < STEPS && produced < 8; i++) {
        unsigned before = produced;
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
        assert_true(produced <= before + 1);
        if (before && produced < 8) // those that were put off are not waited for
            assert_int_equal(cn_http_wait_ms(web.server, 50, web.now_ms), 0);
    }
    assert_int_equal(produced, 8);
    for (int i = 0; i < 8; i++) {
        snprintf(request, sizeof(request), "\r\n\r\n %d", i);
        assert_false(collect(&web, clients[i]));
        assert_true(says(&web, request));
        close(clients[i]);
    }
    close_web(&web);
}

static void a_server_may_be_closed_while_requests_are_put_off(void **state)
{
    struct web_server web = open_web("", NULL);
    int clients[3];
    char request[128];
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        clients[i] = join(&web);
        put(clients[i], request);
    }
    produced = 0;
    for (int i = 0; i < STEPS && !produced; i++)
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(produced, 1);
    close_web(&web);
    for (int i = 0; i < 3; i++)
        close(clients[i]);
}

static void answers_that_must_be_made_are_limited(void **state)
{
    struct web_server web = open_web("", NULL);
    char request[128];
    int busy = 0;
    (void)state;
    for (int i = 0; i < 300; i++) {
        snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        busy += ask(&web, request) == 429;
    }
    assert_true(busy >= 100); // more where the answers took long
    assert_true(says(&web, "Retry-After: 1\r\n"));
    assert_int_equal(ask(&web, "GET /count?from=299 HTTP/1.1\r\n" HOST "\r\n"), 429);
    assert_int_equal(ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);      // was not made yet,
    assert_int_equal(ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200); // as this one
    web.now_ms += 600000;
    assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(ask(&web, "GET /count?from=299 HTTP/1.1\r\n" HOST "\r\n"), 200);
    close_web(&web);
}

static void names_and_numbers_are_read_strictly(void **state)
{
    struct web_server web = open_web("", NULL);
    static const struct {
        const char *target;
        int status;
    } cases[] = {
        {"/board/board-7", 200},
        {"/board/..", 404},
        {"/board/", 404},
        {"/board", 404},
        {"/board/a/b", 404},
        {"/board/%61", 404},
        {"/board/ABC", 404},
        {"/count?from=12", 200},
        {"/count?from=", 400},
        {"/count?from=-1", 400},
        {"/count?from=1&from=2", 400},
        {"/count?from=1234567890123456789", 400},
        {"/count?since=1", 400},
        {"/count?", 400},
        {"/fresh?from=1", 400},
        {"/count/", 404},
        {"/%63ount", 404},
        {"//count", 404},
        {"/../etc/passwd", 404},
        {"http://localhost:8684/count", 404},
        {"/failing/unknown", 404},
        {"/failing/full", 503},
    };
    char request[256];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\n" HOST "\r\n", cases[i].target);
        int status = ask(&web, request);
        if (status != cases[i].status)
            fail_msg("%s: %d, expected %d", cases[i].target, status, cases[i].status);
    }
    assert_int_equal(ask(&web, "GET /board/board-7 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(says(&web, "board-7 0"));
    close_web(&web);
}

static void other_methods_and_bodies_are_refused_and_the_connection_is_closed(void **state)
{
    struct web_server web = open_web("", NULL);
    static const char *const methods[] = {"POST",  "PUT",     "DELETE", "OPTIONS",
                                          "PATCH", "CONNECT", "TRACE",  "get"};
    char request[256];
    (void)state;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        snprintf(request, sizeof(request), "%s / HTTP/1.1\r\n" HOST "\r\n", methods[i]);
        int status = ask(&web, request);
        if (status != 405)
            fail_msg("%s: %d, expected 405", methods[i], status);
    }
    assert_int_equal(ask(&web, "POST / HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nbody"), 405);
    assert_true(says(&web, "Allow: GET, HEAD\r\n"));
    assert_true(says(&web, "Content-Security-Policy"));
    assert_int_equal(ask(&web, "GET / HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nbody"), 400);
    assert_int_equal(ask(&web, "GET / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n"), 400);
    assert_int_equal(
        ask(&web, "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
    int client = join(&web);
    put(client, "GET / HTTP/1.1\r\n" HOST "Content-Length: 99999999\r\n\r\nsome");
    assert_true(collect(&web, client));
    assert_true(says(&web, "HTTP/1.1 400"));
    close(client);
    close_web(&web);
}

static void another_host_gets_421_and_another_origin_403(void **state)
{
    struct web_server web = open_web("gateway.example other.example:8443", NULL);
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        {"Host: localhost:8684\r\n", 200},
        {"Host: LocalHost:8684\r\n", 200},
        {"Host: 127.0.0.1:8684\r\n", 200},
        {"Host: [::1]:8684\r\n", 200},
        {"Host: gateway.example\r\n", 200},
        {"Host: gateway.example:8684\r\n", 200},
        {"Host: other.example:8443\r\n", 200},
        {"Host: gateway.example:1\r\n", 421},
        {"Host: other.example\r\n", 421},
        {"Host: localhost\r\n", 421},
        {"Host: localhost:1\r\n", 421},
        {"Host: localhost:86840\r\n", 421},
        {"Host: evil.example:8684\r\n", 421},
        {"Host: localhost.evil.example:8684\r\n", 421},
        {"Host: 127.0.0.1:8684:8684\r\n", 421},
        {"Host: [::1\r\n", 421},
        {"Host: \r\n", 421},
        {"", 400},
        {HOST "Host: evil.example\r\n", 400},
        {HOST "Origin: http://localhost:8684\r\n", 200},
        {"Host: gateway.example\r\nOrigin: https://gateway.example\r\n", 200},
        {HOST "Origin: http://127.0.0.1:8684\r\n", 403},
        {HOST "Origin: http://evil.example\r\n", 403},
        {HOST "Origin: null\r\n", 403},
        {HOST "Origin: \r\n", 403},
        {HOST "Origin: http://localhost:8684\r\nOrigin: http://evil.example\r\n", 400},
    };
    char request[256];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(request, sizeof(request), "GET / HTTP/1.1\r\n%s\r\n", cases[i].headers);
        int status = ask(&web, request);
        if (status != cases[i].status)
            fail_msg("%s: %d, expected %d", cases[i].headers, status, cases[i].status);
    }
    close_web(&web);
}

static void other_sites_get_only_what_is_fixed(void **state)
{
    struct web_server web = open_web("", NULL);
    static const struct {
        const char *path, *headers;
        int status;
    } cases[] = {
        {"/fresh", "", 200},
        {"/fresh", "Sec-Fetch-Site: none\r\n", 200},
        {"/fresh", "Sec-Fetch-Site: same-origin\r\n", 200},
        {"/fresh", "Sec-Fetch-Site: same-site\r\n", 403},
        {"/fresh", "Sec-Fetch-Site: cross-site\r\n", 403},
        {"/fresh", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", 403},
        {"/fresh", "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n", 400},
        {"/", "Sec-Fetch-Site: cross-site\r\n", 200},
    };
    char request[256];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\n" HOST "%s\r\n", cases[i].path,
                 cases[i].headers);
        int status = ask(&web, request);
        if (status != cases[i].status)
            fail_msg("%s %s: %d, expected %d", cases[i].path, cases[i].headers, status,
                     cases[i].status);
    }
    close_web(&web);
}

static void only_the_token_opens_what_is_not_open(void **state)
{
    struct web_server web = open_web("", TOKEN);
    static const struct {
        const char *header;
        int status;
    } cases[] = {
        {"", 401},
        {"Authorization: Bearer " TOKEN "\r\n", 200},
        {"Authorization: bearer " TOKEN "\r\n", 200},
        {"Authorization: Bearer " TOKEN "0\r\n", 401},
        {"Authorization: Bearer 0123456789abcdef\r\n", 401},
        {"Authorization: Bearer \r\n", 401},
        {"Authorization: Basic " TOKEN "\r\n", 401},
        {"Authorization: " TOKEN "\r\n", 401},
        {"Authorization: Bearer " TOKEN "\r\nAuthorization: Bearer x\r\n", 400},
    };
    char request[512];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(request, sizeof(request), "GET /count HTTP/1.1\r\n" HOST "%s\r\n",
                 cases[i].header);
        int status = ask(&web, request);
        if (status != cases[i].status)
            fail_msg("%s: %d, expected %d", cases[i].header, status, cases[i].status);
    }
    assert_int_equal(ask(&web, "GET /count HTTP/1.1\r\n" HOST "\r\n"), 401);
    assert_true(says(&web, "WWW-Authenticate: Bearer"));
    assert_int_equal(ask(&web, "GET /count?token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n"), 400);
    assert_int_equal(ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200); // the page asks for it
    close_web(&web);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    struct web_server web = open_web("", NULL);
    int client = join(&web);
    const char *at;
    (void)state;
    for (int i = 1; i <= 3; i++) {
        char request[128];
        snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        put(client, request);
    }
    assert_false(collect(&web, client));
    at = strstr(web.answer, "\r\n\r\n 1HTTP/1.1 200");
    at = at ? strstr(at, "\r\n\r\n 2HTTP/1.1 200") : NULL;
    assert_non_null(at ? strstr(at, "\r\n\r\n 3") : NULL);
    close(client);
    // After a refusal nothing more of the connection counts.
    client = join(&web);
    put(client, "POST / HTTP/1.1\r\n" HOST "Content-Length: 40\r\n\r\n"
                "GET /count HTTP/1.1\r\n" HOST "\r\n");
    assert_true(collect(&web, client));
    assert_null(strstr(web.answer + 1, "HTTP/1.1 200"));
    close(client);
    close_web(&web);
}

static void nonsense_gets_no_success(void **state)
{
    struct web_server web = open_web("", NULL);
    static const char *const cases[] = {
        "\r\n\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n" HOST "\r\n",
        "GET / HTTP/1.1\n" HOST "\n",
        "GET / HTTP/1.1\r\nHost : localhost:8684\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST " folded: line\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "no colon\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int status = ask(&web, cases[i]);
        if (status != 0 && (status < 400 || status > 505))
            fail_msg("case %zu: %d", i, status);
    }
    assert_int_equal(ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
    close_web(&web);
}

static void a_large_head_is_refused(void **state)
{
    struct web_server web = open_web("", NULL);
    static const size_t sizes[] = {7000, 9000, 12000, 40000};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *request = calloc(1, sizes[i] + 200);
        assert_non_null(request);
        strcpy(request, "GET / HTTP/1.1\r\n" HOST "X: ");
        size_t length = strlen(request);
        memset(request + length, 'a', sizes[i]);
        strcpy(request + length + sizes[i], "\r\n\r\n");
        int status = ask(&web, request);
        if (sizes[i] < CN_HTTP_HEAD_MAX ? status != 200 : status != 431 && status != 413)
            fail_msg("%zu bytes: %d", sizes[i], status);
        free(request);
    }
    char long_path[400] = "GET /";
    memset(long_path + 5, 'a', 300);
    strcpy(long_path + 305, " HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(ask(&web, long_path), 414);
    close_web(&web);
}

static void a_slow_head_is_cut_off_however_it_dribbles(void **state)
{
    struct web_server web = open_web("", NULL);
    int client = join(&web);
    (void)state;
    put(client, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 4; i++) {
        web.now_ms += CN_HTTP_HEAD_MS / 5;
        put(client, "X: y\r\n");
        assert_false(collect(&web, client));
        assert_int_equal(cn_http_connections(web.server), 1);
    }
    web.now_ms += CN_HTTP_HEAD_MS / 5;
    assert_int_equal(cn_http_wait_ms(web.server, 50, web.now_ms), 0);
    assert_true(collect(&web, client));
    assert_int_equal(web.size, 0);
    assert_int_equal(cn_http_connections(web.server), 0);
    close(client);
    close_web(&web);
}

static void an_idle_connection_stays_for_a_minute(void **state)
{
    struct web_server web = open_web("", NULL);
    int client = join(&web);
    (void)state;
    put(client, "GET / HTTP/1.1\r\n" HOST "\r\n");
    assert_false(collect(&web, client));
    web.now_ms += CN_HTTP_IDLE_MS - 1;
    put(client, "GET / HTTP/1.1\r\n" HOST "\r\n");
    assert_false(collect(&web, client));
    assert_true(says(&web, "HTTP/1.1 200"));
    web.now_ms += CN_HTTP_IDLE_MS;
    assert_true(collect(&web, client));
    close(client);
    close_web(&web);
}

static void a_connection_without_the_token_idles_for_less(void **state)
{
    struct web_server web = open_web("", TOKEN);
    int stranger = join(&web), friend = join(&web);
    (void)state;
    put(stranger, "GET / HTTP/1.1\r\n" HOST "\r\n");
    put(friend, "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer " TOKEN "\r\n\r\n");
    assert_false(collect(&web, stranger));
    assert_false(collect(&web, friend));
    web.now_ms += CN_HTTP_HEAD_MS;
    assert_true(collect(&web, stranger));
    assert_false(collect(&web, friend));
    close(stranger);
    close(friend);
    close_web(&web);
}

static void a_client_that_does_not_read_is_dropped_and_keeps_nobody_waiting(void **state)
{
    struct web_server web = open_web("", NULL);
    int idler = join(&web);
    (void)state;
    put(idler, "GET /large HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(ask(&web, "GET /large HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(web.size > 3u << 20);
    assert_int_equal(cn_http_connections(web.server), 1);
    web.now_ms += CN_HTTP_IDLE_MS;
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(cn_http_connections(web.server), 0);
    close(idler);
    close_web(&web);
}

static void connections_are_limited_and_come_back(void **state)
{
    struct web_server web = open_web("", NULL);
    int clients[CN_HTTP_CONNECTIONS], pair[2];
    (void)state;
    for (int i = 0; i < CN_HTTP_CONNECTIONS; i++)
        clients[i] = join(&web);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_not_equal(cn_http_adopt(web.server, pair[1]), CN_OK);
    close(pair[0]);
    assert_int_equal(cn_http_connections(web.server), CN_HTTP_CONNECTIONS);
    web.now_ms += CN_HTTP_HEAD_MS;
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(cn_http_connections(web.server), 0);
    assert_int_equal(ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
    for (int i = 0; i < CN_HTTP_CONNECTIONS; i++)
        close(clients[i]);
    close_web(&web);
}

static void whoever_idles_the_longest_makes_room(void **state)
{
    struct web_server web = open_web("", NULL);
    int clients[CN_HTTP_CONNECTIONS];
    (void)state;
    for (int i = 0; i < CN_HTTP_CONNECTIONS - 1; i++)
        clients[i] = join(&web);
    for (int i = CN_HTTP_CONNECTIONS - 2; i >= 0; i--) { // so the first one idles the shortest
        put(clients[i], "GET / HTTP/1.1\r\n" HOST "\r\n");
        web.now_ms++;
        assert_false(collect(&web, clients[i]));
    }
    clients[CN_HTTP_CONNECTIONS - 1] = join(&web);
    assert_true(collect(&web, clients[CN_HTTP_CONNECTIONS - 2]));
    assert_int_equal(cn_http_connections(web.server), CN_HTTP_CONNECTIONS - 1);
    assert_int_equal(ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(cn_http_connections(web.server), CN_HTTP_CONNECTIONS - 2);
    assert_true(collect(&web, clients[CN_HTTP_CONNECTIONS - 3]));
    put(clients[0], "GET / HTTP/1.1\r\n" HOST "\r\n");
    assert_false(collect(&web, clients[0]));
    assert_true(says(&web, "HTTP/1.1 200"));
    for (int i = 0; i < CN_HTTP_CONNECTIONS; i++)
        close(clients[i]);
    close_web(&web);
}

// Returns how many of 12 connections from one address a server keeps.
static unsigned count_kept(bool local)
{
    char listen[32];
    int clients[12];
    unsigned port = free_port();
    struct cn_http_config config = {.routes = routes, .route_count = 1, .local = local};
    struct cn_http_server *server;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    snprintf(listen, sizeof(listen), "0.0.0.0:%u", port);
    config.listen = listen;
    cn_http_rules_set(&config.rules, listen, "", NULL);
    assert_int_equal(cn_http_open(&config, &server), CN_OK);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (size_t i = 0; i < 12; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(clients[i] >= 0);
        assert_int_equal(connect(clients[i], (const struct sockaddr *)&address, sizeof(address)),
                         0);
    }
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(cn_http_step(server, 1000000), CN_OK);
    unsigned kept = cn_http_connections(server);
    for (size_t i = 0; i < 12; i++)
        close(clients[i]);
    cn_http_close(server);
    return kept;
}

static void one_address_cannot_take_all_connections(void **state)
{
    (void)state;
    assert_int_equal(count_kept(false), CN_HTTP_PER_ADDRESS);
    assert_int_equal(count_kept(true), 12);
}

static void a_request_may_end_anywhere(void **state)
{
    static const char request[] = "GET /count?from=3 HTTP/1.1\r\n" HOST
                                  "Authorization: Bearer " TOKEN "\r\nAccept: */*\r\n\r\n";
    struct web_server web = open_web("", TOKEN);
    (void)state;
    for (size_t length = 0; length < sizeof(request) - 1; length++) {
        int client = join(&web);
        assert_int_equal(send(client, request, length, MSG_NOSIGNAL), length);
        for (int i = 0; i < 4; i++)
            assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
        close(client);
        for (int i = 0; i < 4; i++)
            assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    }
    assert_int_equal(cn_http_connections(web.server), 0);
    assert_int_equal(ask(&web, request), 200);
    close_web(&web);
}

static void a_port_or_socket_file_in_use_is_refused(void **state)
{
    struct cn_http_config config = {.routes = routes, .route_count = 1};
    struct cn_http_server *first, *second;
    char path[128];
    struct stat info;
    (void)state;
    snprintf(path, sizeof(path), "unix:/tmp/cairn-http-%d.sock", getpid());
    config.listen = path;
    cn_http_rules_set(&config.rules, path, "", NULL);
    assert_int_equal(cn_http_open(&config, &first), CN_OK);
    assert_int_equal(stat(path + 5, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0660);
    assert_int_equal(cn_http_open(&config, &second), CN_EEXIST);
    assert_null(second);
    assert_int_equal(stat(path + 5, &info), 0); // the first one's file is still there
    cn_http_close(first);
    assert_int_not_equal(stat(path + 5, &info), 0);
}

static cn_err read_token(const char *text, mode_t mode, const char **why)
{
    char path[64];
    uint8_t digest[CN_DIGEST_SIZE];
    snprintf(path, sizeof(path), "/tmp/cairn-token-%d", getpid());
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(file, mode), 0);
    close(file);
    cn_err err = cn_http_token_read(path, digest, why);
    unlink(path);
    return err;
}

static void a_token_file_must_be_private_and_hold_one_line(void **state)
{
    char text[400] = TOKEN;
    const char *why;
    uint8_t digest[CN_DIGEST_SIZE];
    (void)state;
    assert_int_equal(read_token(TOKEN "\n", 0600, &why), CN_OK);
    assert_int_equal(read_token(TOKEN, 0400, &why), CN_OK);
    assert_int_equal(read_token(TOKEN "\n", 0640, &why), CN_EAUTH);
    assert_non_null(strstr(why, "0600"));
    assert_int_equal(read_token("short\n", 0600, &why), CN_EFORMAT);
    assert_int_equal(read_token("", 0600, &why), CN_EFORMAT);
    assert_int_equal(read_token(TOKEN "\n" TOKEN "\n", 0600, &why), CN_EFORMAT);
    assert_int_equal(read_token("with a blank " TOKEN, 0600, &why), CN_EFORMAT);
    memset(text, 'a', 300);
    assert_int_equal(read_token(text, 0600, &why), CN_EFORMAT);
    assert_int_equal(cn_http_token_read("/tmp/cairn-no-such-token", digest, &why), CN_ENOTFOUND);
    assert_int_equal(cn_http_token_read("/tmp", digest, &why), CN_EFORMAT);
}

static void a_token_file_of_a_stranger_is_refused(void **state)
{
    char folder[] = "/tmp/cairn-token-XXXXXX", path[64];
    const char *why;
    uint8_t digest[CN_DIGEST_SIZE];
    (void)state;
    if (geteuid() != 0) // nobody else can give a file away
        skip();
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/token", folder);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, TOKEN "\n", strlen(TOKEN) + 1), strlen(TOKEN) + 1);
    close(file);
    assert_int_equal(cn_http_token_read(path, digest, &why), CN_OK);
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_int_equal(cn_http_token_read(path, digest, &why), CN_EAUTH);
    assert_non_null(strstr(why, "another user"));
    assert_int_equal(chown(folder, 12345, 12345), 0); // as a service's folder
    assert_int_equal(cn_http_token_read(path, digest, &why), CN_OK);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_path_is_answered_with_all_headers),
        cmocka_unit_test(head_has_the_length_and_no_body),
        cmocka_unit_test(an_answer_that_did_not_change_is_304),
        cmocka_unit_test(a_fresh_answer_is_made_once),
        cmocka_unit_test(a_number_has_one_answer_however_it_is_written),
        cmocka_unit_test(the_only_answer_of_a_path_keeps_its_place),
        cmocka_unit_test(answers_that_take_long_are_charged_for_it),
        cmocka_unit_test(a_step_makes_one_answer_and_the_next_one_goes_on),
        cmocka_unit_test(a_server_may_be_closed_while_requests_are_put_off),
        cmocka_unit_test(answers_that_must_be_made_are_limited),
        cmocka_unit_test(names_and_numbers_are_read_strictly),
        cmocka_unit_test(other_methods_and_bodies_are_refused_and_the_connection_is_closed),
        cmocka_unit_test(another_host_gets_421_and_another_origin_403),
        cmocka_unit_test(other_sites_get_only_what_is_fixed),
        cmocka_unit_test(only_the_token_opens_what_is_not_open),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(nonsense_gets_no_success),
        cmocka_unit_test(a_large_head_is_refused),
        cmocka_unit_test(a_slow_head_is_cut_off_however_it_dribbles),
        cmocka_unit_test(an_idle_connection_stays_for_a_minute),
        cmocka_unit_test(a_connection_without_the_token_idles_for_less),
        cmocka_unit_test(a_client_that_does_not_read_is_dropped_and_keeps_nobody_waiting),
        cmocka_unit_test(connections_are_limited_and_come_back),
        cmocka_unit_test(whoever_idles_the_longest_makes_room),
        cmocka_unit_test(one_address_cannot_take_all_connections),
        cmocka_unit_test(a_request_may_end_anywhere),
        cmocka_unit_test(a_port_or_socket_file_in_use_is_refused),
        cmocka_unit_test(a_token_file_must_be_private_and_hold_one_line),
        cmocka_unit_test(a_token_file_of_a_stranger_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
