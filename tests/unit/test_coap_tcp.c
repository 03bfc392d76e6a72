// The CoAP server and client over TLS and TCP on the loopback interface.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coap_world.h"

static void over_tcp_messages_are_large_and_forward_secret(void **state)
{
    struct coap_world world = {.transport = CN_LINK_TCP};

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP); // the client checks the cipher suite
    assert_true(world.client->stream);
    assert_int_equal(world.client->body_max, CN_COAP_BODY_MAX);
    request(&world, &(struct cn_exchange_request){.tag = 3, .method = CN_COAP_GET, .path = "much"});
    wait_replies(&world, 1);
    assert_int_equal(world.replies[0].code, CN_COAP_CONTENT);
    assert_int_equal(world.replies[0].size, CN_COAP_BODY_MAX);
    stop(&world);
}

static void over_tcp_a_wrong_key_is_refused(void **state)
{
    struct coap_world world = {.transport = CN_LINK_TCP};

    (void)state;
    start(&world);
    world.client->ops->close(world.client);
    world.client = open_client(&world, "board-1", 'x');
    wait_for(&world, CN_EXCHANGE_REFUSED);
    assert_int_equal(world.requests, 0);
    stop(&world);
}

enum cut { CLOSED, RESET, ANSWERED_WITH_JUNK, CUTS };

// Listens where the server of the world would and ends each handshake after its first bytes.
// Returns the number of handshakes, at most most, that came before the client took itself for
// refused.
static int cut_handshakes(struct coap_world *world, enum cut cut, int most)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct linger at_once = {.l_onoff = 1};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, count = 0;
    uint64_t end = cn_platform_now_ms() + 20000;
    char hello[2048];

    name.sin_port = htons((uint16_t)atoi(strchr(world->address, ':') + 1));
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(listener, 5), 0);
    while (state_of(world->client) != CN_EXCHANGE_REFUSED && count < most &&
           cn_platform_now_ms() < end) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);

        for (int i = 0; fd >= 0 && read(fd, hello, sizeof(hello)) <= 0 && i < 1000; i++)
            turn(world);
        if (fd >= 0 && cut == ANSWERED_WITH_JUNK)
            assert_int_equal(write(fd, "HTTP/1.1 400 \r\n", 15), 15);
        if (fd >= 0 && cut == RESET)
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
        if (fd >= 0)
            close(fd);
        count += fd >= 0;
        turn(world);
    }
    close(listener);
    return count;
}

static void a_handshake_over_tcp_that_is_cut_is_no_refusal(void **state)
{
    (void)state;
    for (enum cut cut = CLOSED; cut < CUTS; cut++) {
        struct coap_world world = {.transport = CN_LINK_TCP};

        cn_log_set_level(CN_LOG_ERROR);
        free_address(world.address);
        world.client = open_client(&world, "board-1", '1');
        assert_int_equal(cut_handshakes(&world, cut, 4), 4);
        idle(&world, 20);
        assert_int_equal(state_of(world.client), CN_EXCHANGE_DOWN);
        assert_non_null(strstr(world.client->text, "cut off or damaged"));
        assert_int_equal(open_server(&world), CN_OK);
        wait_long_for(&world, CN_EXCHANGE_UP);
        stop(&world);
    }
}

// Nobody hears what is sent to 127.0.0.2 over UDP; the server listens there over TCP.
static void where_udp_does_not_get_through_tcp_is_used(void **state)
{
    struct sockaddr_in deaf = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002)};
    struct coap_world world = {.transport = CN_LINK_UDP};
    int one = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);
    char port[8];

    (void)state;
    cn_log_set_level(CN_LOG_ERROR);
    free_address(world.address);
    snprintf(port, sizeof(port), "%s", strchr(world.address, ':') + 1);
    snprintf(world.address, sizeof(world.address), "0.0.0.0:%s", port);
    assert_int_equal(open_server(&world), CN_OK);
    deaf.sin_port = htons((uint16_t)atoi(port));
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&deaf, sizeof(deaf)), 0);
    snprintf(world.address, sizeof(world.address), "127.0.0.2:%s", port);
    world.client = open_client(&world, "board-1", '1');
    wait_for(&world, CN_EXCHANGE_DOWN);
    world.client->ops->close(world.client);
    world.transport = CN_LINK_AUTO;
    world.client = open_client(&world, "board-1", '1');
    wait_for(&world, CN_EXCHANGE_UP);
    assert_true(world.client->stream);
    close(fd);
    stop(&world);
}

static void ipv4_and_ipv6_are_served_at_the_same_port(void **state)
{
    struct coap_world world = {.transport = CN_LINK_TCP};
    char v4[32], v6[32], text[32];
    const char *listen[] = {v4, v6};
    struct cn_coap_server_config config = {
        .listen = listen,
        .listen_count = 2,
        .routes = routes,
        .route_count = sizeof(routes) / sizeof(routes[0]),
        .context = &world,
        .find_key = find_key,
        .handshakes_max = 10,
        .sessions_max = 10,
    };
    int port, probe = socket(AF_INET6, SOCK_DGRAM, 0);

    (void)state;
    if (probe < 0)
        skip(); // a machine without IPv6
    close(probe);
    cn_log_set_level(CN_LOG_ERROR);
    free_address(text);
    port = atoi(strchr(text, ':') + 1);
    snprintf(v4, sizeof(v4), "0.0.0.0:%d", port);
    snprintf(v6, sizeof(v6), "[::]:%d", port);
    assert_int_equal(cn_coap_server_open(&config, &world.server), CN_OK);
    for (int i = 0; i < 2; i++) {
        snprintf(world.address, sizeof(world.address), i ? "[::1]:%d" : "127.0.0.1:%d", port);
        world.client = open_client(&world, i ? "board-2" : "board-1", i ? '2' : '1');
        wait_for(&world, CN_EXCHANGE_UP);
        if (!i)
            world.client->ops->close(world.client);
    }
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_tcp_messages_are_large_and_forward_secret),
        cmocka_unit_test(over_tcp_a_wrong_key_is_refused),
        cmocka_unit_test(a_handshake_over_tcp_that_is_cut_is_no_refusal),
        cmocka_unit_test(where_udp_does_not_get_through_tcp_is_used),
        cmocka_unit_test(ipv4_and_ipv6_are_served_at_the_same_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
