// The HTTP server: how long connections live, how many there may be, and where it listens.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/free_address.h"
#include "tests/unit/web_server.h"

// Tests that open a server of their own look at its connections only.
static const struct cn_http_route routes[] = {
    {.path = "/", .type = "text/html", .open = true, .fixed = "<html>", .fixed_size = 6},
};

static void a_slow_head_is_cut_off_however_it_dribbles(void **state)
{
    struct web_server web = web_open("", NULL);
    int client = web_join(&web);
    (void)state;
    web_put(client, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 4; i++) {
        web.now_ms += CN_HTTP_HEAD_MS / 5;
        web_put(client, "X: y\r\n");
        assert_false(web_collect(&web, client));
        assert_int_equal(cn_http_connections(web.server), 1);
    }
    web.now_ms += CN_HTTP_HEAD_MS / 5;
    assert_int_equal(cn_http_wait_ms(web.server, 50, web.now_ms), 0);
    assert_true(web_collect(&web, client));
    assert_int_equal(web.size, 0);
    assert_int_equal(cn_http_connections(web.server), 0);
    close(client);
    web_close(&web);
}

static void an_idle_connection_stays_for_a_minute(void **state)
{
    struct web_server web = web_open("", NULL);
    int client = web_join(&web);
    (void)state;
    web_put(client, "GET / HTTP/1.1\r\n" HOST "\r\n");
    assert_false(web_collect(&web, client));
    web.now_ms += CN_HTTP_IDLE_MS - 1;
    web_put(client, "GET / HTTP/1.1\r\n" HOST "\r\n");
    assert_false(web_collect(&web, client));
    assert_true(web_says(&web, "HTTP/1.1 200"));
    web.now_ms += CN_HTTP_IDLE_MS;
    assert_true(web_collect(&web, client));
    close(client);
    web_close(&web);
}

static void a_connection_without_the_token_idles_for_less(void **state)
{
    struct web_server web = web_open("", TOKEN);
    int stranger = web_join(&web), friend = web_join(&web);
    (void)state;
    web_put(stranger, "GET / HTTP/1.1\r\n" HOST "\r\n");
    web_put(friend, "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer " TOKEN "\r\n\r\n");
    assert_false(web_collect(&web, stranger));
    assert_false(web_collect(&web, friend));
    web.now_ms += CN_HTTP_HEAD_MS;
    assert_true(web_collect(&web, stranger));
    assert_false(web_collect(&web, friend));
    close(stranger);
    close(friend);
    web_close(&web);
}

static void a_client_that_does_not_read_is_dropped_and_keeps_nobody_waiting(void **state)
{
    struct web_server web = web_open("", NULL);
    int idler = web_join(&web);
    (void)state;
    web_put(idler, "GET /large HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(web_ask(&web, "GET /large HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_true(web.size > 3u << 20);
    assert_int_equal(cn_http_connections(web.server), 1);
    web.now_ms += CN_HTTP_IDLE_MS;
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(cn_http_connections(web.server), 0);
    close(idler);
    web_close(&web);
}

static void connections_are_limited_and_come_back(void **state)
{
    struct web_server web = web_open("", NULL);
    int clients[CN_HTTP_CONNECTIONS], pair[2];
    (void)state;
    for (int i = 0; i < CN_HTTP_CONNECTIONS; i++)
        clients[i] = web_join(&web);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_not_equal(cn_http_adopt(web.server, pair[1]), CN_OK);
    close(pair[0]);
    assert_int_equal(cn_http_connections(web.server), CN_HTTP_CONNECTIONS);
    web.now_ms += CN_HTTP_HEAD_MS;
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    assert_int_equal(cn_http_connections(web.server), 0);
    assert_int_equal(web_ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
    for (int i = 0; i < CN_HTTP_CONNECTIONS; i++)
        close(clients[i]);
    web_close(&web);
}

static void whoever_idles_the_longest_makes_room(void **state)
{
    struct web_server web = web_open("", NULL);
    int clients[CN_HTTP_CONNECTIONS];
    (void)state;
    for (int i = 0; i < CN_HTTP_CONNECTIONS - 1; i++)
        clients[i] = web_join(&web);
    for (int i = CN_HTTP_CONNECTIONS - 2; i >= 0; i--) { // so the first one idles the shortest
        web_put(clients[i], "GET / HTTP/1.1\r\n" HOST "\r\n");
        web.now_ms++;
        assert_false(web_collect(&web, clients[i]));
    }
    clients[CN_HTTP_CONNECTIONS - 1] = web_join(&web);
    assert_true(web_collect(&web, clients[CN_HTTP_CONNECTIONS - 2]));
    assert_int_equal(cn_http_connections(web.server), CN_HTTP_CONNECTIONS - 1);
    assert_int_equal(web_ask(&web, "GET / HTTP/1.1\r\n" HOST "\r\n"), 200);
    assert_int_equal(cn_http_connections(web.server), CN_HTTP_CONNECTIONS - 2);
    assert_true(web_collect(&web, clients[CN_HTTP_CONNECTIONS - 3]));
    web_put(clients[0], "GET / HTTP/1.1\r\n" HOST "\r\n");
    assert_false(web_collect(&web, clients[0]));
    assert_true(web_says(&web, "HTTP/1.1 200"));
    for (int i = 0; i < CN_HTTP_CONNECTIONS; i++)
        close(clients[i]);
    web_close(&web);
}

// Else the newcomer would always be the only one without a request, and be the one to go.
static void connections_that_ask_without_end_make_room_for_a_newcomer(void **state)
{
    struct web_server web = web_open("", NULL);
    int clients[CN_HTTP_CONNECTIONS];
    char line[64];
    (void)state;
    for (int i = 0; i < CN_HTTP_CONNECTIONS - 1; i++) {
        clients[i] = web_join(&web);
        web_put(clients[i], "GET / HTTP/1.1\r\n" HOST "\r\n");
        assert_false(web_collect(&web, clients[i]));
    }
    for (int i = 0; i < CN_HTTP_CONNECTIONS;
         i++) { // the first asks twice; then all wait for a turn
        snprintf(line, sizeof(line), "GET /slow?from=%d HTTP/1.1\r\n" HOST "\r\n", i);
        web_put(clients[i % (CN_HTTP_CONNECTIONS - 1)], line);
        for (int k = 0; k < STEPS; k++)
            assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    }
    clients[CN_HTTP_CONNECTIONS - 1] = web_join(&web);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(cn_http_step(web.server, web.now_ms), CN_OK);
    web_put(clients[CN_HTTP_CONNECTIONS - 1], "GET / HTTP/1.1\r\n" HOST "\r\n");
    assert_false(web_collect(&web, clients[CN_HTTP_CONNECTIONS - 1]));
    assert_true(web_says(&web, "HTTP/1.1 200"));
    for (int i = 0; i < CN_HTTP_CONNECTIONS; i++)
        close(clients[i]);
    web_close(&web);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_head_is_cut_off_however_it_dribbles),
        cmocka_unit_test(an_idle_connection_stays_for_a_minute),
        cmocka_unit_test(a_connection_without_the_token_idles_for_less),
        cmocka_unit_test(a_client_that_does_not_read_is_dropped_and_keeps_nobody_waiting),
        cmocka_unit_test(connections_are_limited_and_come_back),
        cmocka_unit_test(whoever_idles_the_longest_makes_room),
        cmocka_unit_test(connections_that_ask_without_end_make_room_for_a_newcomer),
        cmocka_unit_test(one_address_cannot_take_all_connections),
        cmocka_unit_test(a_port_or_socket_file_in_use_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
