// The HTTP server: which requests it refuses, and how it reads those of hostile clients.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/web_server.h"

static void names_and_numbers_are_read_strictly(void **state)
{
    struct web_server web = web_open("", NULL);
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
        int status = web_ask(&web, request);
        if (status != cases[i].status)
            fail_msg("%s: %d, expected %d", cases[i].target, status, cases[i].status);
    }
    assert_int_equal(web_ask(&web, "GET /board/board-7 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(web_says(&web, "board-7 0"));
    web_close(&web);
}

static void other_methods_and_bodies_are_refused_and_the_connection_is_closed(void **state)
{
    struct web_server web = web_open("", NULL);
    static const char *const methods[] = {"POST",  "PUT",     "DELETE", "OPTIONS",
                                          "PATCH", "CONNECT", "TRACE",  "get"};
    char request[256];
    (void)state;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        snprintf(request, sizeof(request), "%s / HTTP/1.1\r\n" HOST "\r\n", methods[i]);
        int status = web_ask(&web, request);
        if (status != 405)
            fail_msg("%s: %d, expected 405", methods[i], status);
    }
    assert_int_equal(web_ask(&web, "POST / HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nbody"),
                     405);
    assert_true(web_says(&web, "Allow: GET, HEAD\r\n"));
    assert_true(web_says(&web, "Content-Security-Policy"));
    assert_int_equal(web_ask(&web, "GET / HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nbody"), 400);
    assert_int_equal(web_ask(&web, "GET / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n"), 400);
    assert_int_equal(
        web_ask(&web, "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        400);
    int client = web_join(&web);
    web_put(client, "GET / HTTP/1.1\r\n" HOST "Content-Length: 99999999\r\n\r\nsome");
    assert_true(web_collect(&web, client));
    assert_true(web_says(&web, "HTTP/1.1 400"));
    close(client);
    web_close(&web);
}

static void another_host_gets_421_and_another_origin_403(void **state)
{
    struct web_server web = web_open("gateway.example other.example:8443", NULL);
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
        int status = web_ask(&web, request);
        if (status != cases[i].status)
            fail_msg("%s: %d, expected %d", cases[i].headers, status, cases[i].status);
    }
    web_close(&web);
}

static void other_sites_get_only_what_is_fixed(void **state)
{
    struct web_server web = web_open("", NULL);
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
        int status = web_ask(&web, request);
        if (status != cases[i].status)
            fail_msg("%s %s: %d, expected %d", cases[i].path, cases[i].headers, status,
                     cases[i].status);
    }
    web_close(&web);
}

static void only_the_token_opens_what_is_not_open(void **state)
{
    struct web_server web = web_open("", TOKEN);
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
        int status = web_ask(&web, request);
        if (status != cases[i].status)
            fail_msg("%s: %d, expected %d", cases[i].header, status, cases[i].status);
    }
    assert_int_equal(web_ask(&web, "GET /count HTTP/1.1\r\n" HOST "\r\n"), 401);
    assert_true(web_says(&web, "WWW-Authenticate: Bearer"));
    assert_int_equal(web_ask(&web, "GET /count?token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n"), 400);
    assert_int_equal(web_ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200); // the page asks for it
    web_close(&web);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    struct web_server web = web_open("", NULL);
    int client = web_join(&web);
    const char *at;
    (void)state;
    for (int i = 1; i <= 3; i++) {
        char request[128];
        snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        web_put(client, request);
    }
    assert_false(web_collect(&web, client));
    at = strstr(web.answer, "\r\n\r\n 1HTTP/1.1 200");
    at = at ? strstr(at, "\r\n\r\n 2HTTP/1.1 200") : NULL;
    assert_non_null(at ? strstr(at, "\r\n\r\n 3") : NULL);
    close(client);
    // After a refusal nothing more of the connection counts.
    client = web_join(&web);
    web_put(client, "POST / HTTP/1.1\r\n" HOST "Content-Length: 40\r\n\r\n"
                    "GET /count HTTP/1.1\r\n" HOST "\r\n");
    assert_true(web_collect(&web, client));
    assert_null(strstr(web.answer + 1, "HTTP/1.1 200"));
    close(client);
    web_close(&web);
}

static void nonsense_gets_no_success(void **state)
{
    struct web_server web = web_open("", NULL);
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
        int status = web_ask(&web, cases[i]);
        if (status != 0 && (status < 400 || status > 505))
            fail_msg("case %zu: %d", i, status);
    }
    assert_int_equal(web_ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
    web_close(&web);
}

static void a_large_head_is_refused(void **state)
{
    struct web_server web = web_open("", NULL);
    static const size_t sizes[] = {7000, 9000, 12000, 40000};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *request = calloc(1, sizes[i] + 200);
        assert_non_null(request);
        strcpy(request, "GET / HTTP/1.1\r\n" HOST "X: ");
        size_t length = strlen(request);
        memset(request + length, 'a', sizes[i]);
        strcpy(request + length + sizes[i], "\r\n\r\n");
        int status = web_ask(&web, request);
        if (sizes[i] < CN_HTTP_HEAD_MAX ? status != 200 : status != 431 && status != 413)
            fail_msg("%zu bytes: %d", sizes[i], status);
        free(request);
    }
    char long_path[400] = "GET /";
    memset(long_path + 5, 'a', 300);
    strcpy(long_path + 305, " HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(web_ask(&web, long_path), 414);
    web_close(&web);
}

static void a_request_may_end_anywhere(void **state)
{
    static const char request[] = "GET /count?from=3 HTTP/1.1\r\n" HOST
                                  "Authorization: Bearer " TOKEN "\r\nAccept: */*\r\n\r\n";
    struct web_server web = web_open("", TOKEN);
    (void)state;
    for (size_t length = 0; length < sizeof(request) - 1; length++) {
        int client = web_join(&web);
        assert_int_equal(send(client, request, length, MSG_NOSIGNAL), length);
        for (int i = 0; i < 4; i++)
            assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
        close(client);
        for (int i = 0; i < 4; i++)
            assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    }
    assert_int_equal(cn_http_connections(web.server), 0);
    assert_int_equal(web_ask(&web, request), 200);
    web_close(&web);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_numbers_are_read_strictly),
        cmocka_unit_test(other_methods_and_bodies_are_refused_and_the_connection_is_closed),
        cmocka_unit_test(another_host_gets_421_and_another_origin_403),
        cmocka_unit_test(other_sites_get_only_what_is_fixed),
        cmocka_unit_test(only_the_token_opens_what_is_not_open),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(nonsense_gets_no_success),
        cmocka_unit_test(a_large_head_is_refused),
        cmocka_unit_test(a_request_may_end_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
