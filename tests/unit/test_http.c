// The HTTP server: what it answers, which answers it makes once, and how many at most.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/web_server.h"

static void a_known_path_is_answered_with_all_headers(void **state)
{
    struct web_server web = web_open("", NULL);
    (void)state;
    assert_int_equal(web_ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(web_says(&web, "\r\n\r\n<html>"));
    assert_true(web_says(&web, "Content-Security-Policy: default-src 'none'; script-src 'self'"));
    assert_true(web_says(&web, "frame-ancestors 'none'"));
    assert_true(web_says(&web, "X-Content-Type-Options: nosniff\r\n"));
    assert_true(web_says(&web, "Referrer-Policy: no-referrer\r\n"));
    assert_true(web_says(&web, "Cross-Origin-Resource-Policy: same-origin\r\n"));
    assert_true(web_says(&web, "Cache-Control: no-cache\r\n"));
    assert_false(web_says(&web, "Access-Control"));
    assert_int_equal(web_ask(&web, "GET /count HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(web_says(&web, "Cache-Control: no-store\r\n"));
    assert_int_equal(web_ask(&web, "GET /ready HTTP/1.1\r\n" HOST "\r\n"), 503);
    assert_true(web_says(&web, "\r\n\r\ndisk\n"));
    web_close(&web);
}

static void head_has_the_length_and_no_body(void **state)
{
    struct web_server web = web_open("", NULL);
    (void)state;
    assert_int_equal(web_ask(&web, "HEAD / HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(web_says(&web, "Content-Length: 6\r\n"));
    assert_false(web_says(&web, "<html>"));
    web_close(&web);
}

static void an_answer_that_did_not_change_is_304(void **state)
{
    struct web_server web = web_open("", NULL);
    char request[256], etag[64];
    (void)state;
    assert_int_equal(web_ask(&web, "GET /count HTTP/1.1\r\n" HOST "\r\n"), 200);
    const char *found = strstr(web.answer, "ETag: ");
    assert_non_null(found);
    snprintf(etag, sizeof(etag), "%.18s", found + 6);
    snprintf(request, sizeof(request),
             "GET /count HTTP/1.1\r\n" HOST "If-None-Match: \"other\", %s\r\n\r\n", etag);
    assert_int_equal(web_ask(&web, request), 304);
    assert_true(web_says(&web, etag));
    assert_true(web_says(&web, "Content-Security-Policy"));
    snprintf(request, sizeof(request),
             "GET /count?from=1 HTTP/1.1\r\n" HOST "If-None-Match: %s\r\n\r\n", etag);
    assert_int_equal(web_ask(&web, request), 200);
    web_close(&web);
}

static void a_fresh_answer_is_made_once(void **state)
{
    struct web_server web = web_open("", NULL);
    (void)state;
    web_produced = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(web_ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(web_produced, 1);
    web.now_ms += 1000;
    assert_int_equal(web_ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(web_produced, 2);
    web_close(&web);
}

static void a_number_has_one_answer_however_it_is_written(void **state)
{
    struct web_server web = web_open("", NULL);
    (void)state;
    web_produced = 0;
    assert_int_equal(web_ask(&web, "GET /numbers HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(web_ask(&web, "GET /numbers?from=0 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(web_ask(&web, "GET /numbers?from=000 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(web_produced, 1);
    assert_int_equal(web_ask(&web, "GET /numbers?from=01 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(web_says(&web, "\r\n\r\n 1"));
    assert_int_equal(web_produced, 2);
    web_close(&web);
}

static void the_only_answer_of_a_path_keeps_its_place(void **state)
{
    struct web_server web = web_open("", NULL);
    char request[128];
    (void)state;
    web_produced = 0;
    assert_int_equal(web_ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    for (int i = 0; i < 100; i++) {
        snprintf(request, sizeof(request), "GET /numbers?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        web.now_ms++;
        assert_int_equal(web_ask(&web, request), 200);
    }
    assert_int_equal(web_produced, 101);
    assert_int_equal(web_ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(web_produced, 101);
    web_close(&web);
}

static void answers_that_take_long_are_charged_for_it(void **state)
{
    struct web_server web = web_open("", NULL);
    (void)state;
    assert_int_equal(web_ask(&web, "GET /slow?from=1 HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(web_ask(&web, "GET /slow?from=2 HTTP/1.1\r\n" HOST "\r\n"), 0); // waits
    assert_int_equal(web_ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200);
    for (int i = 0; i < 2; i++) { // the answer is made once for nobody
        web.now_ms += 600000;
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    }
    assert_int_equal(web_ask(&web, "GET /slow?from=2 HTTP/1.1\r\n" HOST "\r\n"), 200);
    web_close(&web);
}

static void a_step_makes_one_answer_and_the_next_one_goes_on(void **state)
{
    struct web_server web = web_open("", NULL);
    int clients[8];
    char request[128];
    (void)state;
    for (int i = 0; i < 8; i++) {
        snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        clients[i] = web_join(&web);
        web_put(clients[i], request);
    }
    web_produced = 0;
    for (unsigned i = 0; i < STEPS && web_produced < 8; i++) {
        unsigned before = web_produced;
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
        assert_true(web_produced <= before + 1);
        if (before && web_produced < 8) // those that were put off are not waited for
            assert_int_equal(cn_http_wait_ms(web.server, 50, web.now_ms), 0);
    }
    assert_int_equal(web_produced, 8);
    for (int i = 0; i < 8; i++) {
        snprintf(request, sizeof(request), "\r\n\r\n %d", i);
        assert_false(web_collect(&web, clients[i]));
        assert_true(web_says(&web, request));
        close(clients[i]);
    }
    web_close(&web);
}

static void a_server_may_be_closed_while_requests_are_put_off(void **state)
{
    struct web_server web = web_open("", NULL);
    int clients[3];
    char request[128];
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        clients[i] = web_join(&web);
        web_put(clients[i], request);
    }
    web_produced = 0;
    for (int i = 0; i < STEPS && !web_produced; i++)
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(web_produced, 1);
    web_close(&web);
    for (int i = 0; i < 3; i++)
        close(clients[i]);
}

// Takes all of the time that answers share. Returns how many answers it was enough for.
static int use_up(struct web_server *web)
{
    char request[128];
    int answered = 0;
    for (int i = 0; i < 300; i++) {
        snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        if (web_ask(web, request) != 200)
            break;
        answered++;
    }
    return answered;
}

static void answers_that_must_be_made_are_limited(void **state)
{
    struct web_server web = web_open("", NULL);
    (void)state;
    assert_in_range(use_up(&web), 1, 200); // fewer where the answers took long
    assert_int_equal(web_ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200); // was not made yet,
    assert_int_equal(web_ask(&web, "GET /fresh HTTP/1.1\r\n" HOST "\r\n"), 200); // as this one
    assert_in_range(cn_http_wait_ms(web.server, 50, web.now_ms), 1, 49); // for those that wait
    web.now_ms += 600000;
    assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(web_ask(&web, "GET /count?from=299 HTTP/1.1\r\n" HOST "\r\n"), 200);
    web_close(&web);
}

// Four clients ask again at once whenever they are answered. A fifth one is answered in its turn.
static void a_client_that_asks_without_end_keeps_nobody_out(void **state)
{
    struct web_server web = web_open("", NULL);
    int clients[4], page = web_join(&web);
    char request[128], answer[4096];
    int number = 1000, turns = 0;
    (void)state;
    (void)use_up(&web);
    for (int i = 0; i < 4; i++) {
        clients[i] = web_join(&web);
        snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n", number++);
        web_put(clients[i], request);
    }
    assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    web_put(page, "GET /count?from=999 HTTP/1.1\r\n" HOST "\r\n");
    for (int step = 0; step < STEPS && recv(page, answer, sizeof(answer), 0) <= 0; step++) {
        for (int i = 0; i < 4; i++) {
            if (recv(clients[i], answer, sizeof(answer), 0) <= 0)
                continue;
            turns++;
            snprintf(request, sizeof(request), "GET /count?from=%d HTTP/1.1\r\n" HOST "\r\n",
                     number++);
            web_put(clients[i], request);
        }
        web.now_ms += 10;
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    }
    assert_int_equal(strncmp(answer, "HTTP/1.1 200", 12), 0);
    assert_in_range(turns, 3, 6);
    for (int i = 0; i < 4; i++)
        close(clients[i]);
    close(page);
    web_close(&web);
}

static void a_request_whose_turn_does_not_come_is_refused(void **state)
{
    struct web_server web = web_open("", NULL);
    int clients[3];
    char request[128];
    (void)state;
    for (int i = 0; i < 3; i++) {
        clients[i] = web_join(&web);
        snprintf(request, sizeof(request), "GET /slow?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        web_put(clients[i], request);
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    }
    // Each answer took so long that there is time for the next one only 50 ms later.
    assert_false(web_collect(&web, clients[0]));
    assert_true(web_says(&web, "HTTP/1.1 200"));
    web.now_ms += CN_HTTP_TURN_MS - 1;
    assert_false(web_collect(&web, clients[1]));
    assert_true(web_says(&web, "HTTP/1.1 200"));
    web.now_ms += 1;
    assert_false(web_collect(&web, clients[2]));
    assert_true(web_says(&web, "HTTP/1.1 429"));
    assert_true(web_says(&web, "Retry-After: 1\r\n"));
    for (int i = 0; i < 3; i++)
        close(clients[i]);
    web_close(&web);
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
        cmocka_unit_test(a_client_that_asks_without_end_keeps_nobody_out),
        cmocka_unit_test(a_request_whose_turn_does_not_come_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
