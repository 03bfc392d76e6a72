// Limits of the CoAP server, against many boards and against strangers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coap_world.h"

static void one_board_too_many_is_told_to_come_back(void **state)
{
    struct cn_exchange_request get = {.method = CN_COAP_GET, .path = "r"};
    struct coap_world world = {.sessions_max = 1};
    struct cn_exchange *first;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &get);
    wait_replies(&world, 1);
    first = world.client;
    world.client = open_client(&world, "board-2", '2');
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &get);
    wait_replies(&world, 2);
    assert_int_equal(world.replies[1].code, CN_COAP_UNAVAILABLE);
    assert_int_equal(world.replies[1].max_age_s, 30);
    assert_int_equal(world.requests, 1);
    cn_coap_server_drop(world.server, "board-1");
    idle(&world, 5);
    request(&world, &get);
    wait_replies(&world, 3);
    assert_int_equal(world.replies[2].code, CN_COAP_CONTENT);
    first->ops->close(first);
    stop(&world);
}

static void a_board_that_asks_too_often_is_told_so_and_others_are_served(void **state)
{
    struct cn_exchange_request get = {.method = CN_COAP_GET, .path = "r"};
    struct coap_world world = {.requests_per_s = 5};
    struct cn_exchange *first;
    int refused;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    for (int i = 1; i <= 30; i++) {
        request(&world, &get);
        wait_replies(&world, i);
    }
    assert_in_range(world.requests, 20, 25); // four seconds' worth and what comes meanwhile
    // The last request is served if the next one was allowed just then. So this looks for the last
    // request that was refused.
    for (refused = 29; refused > 20 && world.replies[refused % KEPT].code != CN_COAP_TOO_MANY;)
        refused--;
    assert_int_equal(world.replies[refused % KEPT].code, CN_COAP_TOO_MANY);
    assert_int_equal(world.replies[refused % KEPT].max_age_s, 2);
    first = world.client;
    world.client = open_client(&world, "board-2", '2');
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &get);
    wait_replies(&world, 31);
    assert_int_equal(world.replies[30 % KEPT].code, CN_COAP_CONTENT);
    first->ops->close(first);
    stop(&world);
}

#define TEN "0123456789"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
#define TOO_LONG HUNDRED "/" HUNDRED "/" HUNDRED // for a path

static void requests_with_a_path_that_cannot_be_read_count_too(void **state)
{
    struct cn_exchange_request get = {.method = CN_COAP_GET, .path = TOO_LONG};
    struct coap_world world = {.requests_per_s = 5};
    int found = 0, refused = 0;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    for (int i = 0; i < 30; i++) {
        request(&world, &get);
        wait_replies(&world, i + 1);
        found += world.replies[i % KEPT].code == CN_COAP_NOT_FOUND;
        refused += world.replies[i % KEPT].code == CN_COAP_TOO_MANY;
    }
    assert_in_range(found, 20, 25);
    assert_int_equal(found + refused, 30);
    stop(&world);
}

// At most the burst of four seconds, what came back meanwhile, and the answer that went beyond.
static void a_model_is_handed_out_no_faster_than_a_board_may_have_it(void **state)
{
    struct cn_exchange_request get = {.method = CN_COAP_GET, .path = "much"};
    struct coap_world world = {.bulk_per_s = 2000};
    uint64_t begin = cn_platform_now_ms(), limit;
    size_t bytes = 0;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    for (int i = 0; i < 150; i++) {
        request(&world, &get);
        wait_replies(&world, i + 1);
        if (world.replies[i % KEPT].code == CN_COAP_CONTENT)
            bytes += world.replies[i % KEPT].size;
    }
    limit = 4 * world.bulk_per_s + 2 * (cn_platform_now_ms() - begin) + MUCH;
    assert_in_range(bytes, 4 * world.bulk_per_s - 2 * MUCH, limit);
    assert_int_equal(world.replies[149 % KEPT].code, CN_COAP_TOO_MANY);
    assert_int_equal(world.replies[149 % KEPT].max_age_s, 2);
    get.path = TOO_LONG; // its answer has nothing of the one before
    request(&world, &get);
    wait_replies(&world, 151);
    assert_int_equal(world.replies[150 % KEPT].code, CN_COAP_NOT_FOUND);
    assert_int_equal(world.replies[150 % KEPT].max_age_s, 0);
    get.path = "r"; // a round is not bulk
    request(&world, &get);
    wait_replies(&world, 152);
    assert_int_equal(world.replies[151 % KEPT].code, CN_COAP_CONTENT);
    stop(&world);
}

// The first datagram of a client, as it goes to an address where nobody answers.
static ssize_t take_hello(uint8_t hello[2048])
{
    struct coap_world world = {0};
    int fd = bind_to(world.address);
    ssize_t size = -1;

    world.client = open_client(&world, "board-1", '1');
    for (int i = 0; i < 1000 && size < 0; i++) {
        turn(&world);
        size = recv(fd, hello, 2048, MSG_DONTWAIT);
    }
    stop(&world);
    close(fd);
    return size;
}

// More than the half-open handshakes that there may be; each costs a small answer and nothing else.
static void a_flood_of_hellos_without_a_cookie_keeps_nobody_out(void **state)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct coap_world world = {0};
    uint8_t hello[2048], answer[2048];
    ssize_t size = take_hello(hello);
    uint64_t end;

    (void)state;
    assert_true(size > 60);
    assert_int_equal(hello[13], 1); // ClientHello
    start(&world);
    world.client->ops->close(world.client);
    world.client = NULL;
    to.sin_port = htons((uint16_t)atoi(strchr(world.address, ':') + 1));
    for (int i = 0; i < 300; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        ssize_t got = -1;

        sendto(fd, hello, (size_t)size, 0, (struct sockaddr *)&to, sizeof(to));
        for (int tries = 0; tries < 100 && got < 0; tries++) {
            turn(&world);
            got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
        }
        assert_in_range(got, 28, size);  // no amplification
        assert_int_equal(answer[13], 3); // HelloVerifyRequest
        close(fd);
    }
    world.client = open_client(&world, "board-1", '1');
    end = cn_platform_now_ms() + WAIT_MS;
    while (state_of(world.client) != CN_EXCHANGE_UP && cn_platform_now_ms() < end)
        turn(&world);
    assert_int_equal(state_of(world.client), CN_EXCHANGE_UP);
    stop(&world);
}
static void connections_that_say_nothing_make_room(void **state)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct coap_world world = {.transport = CN_LINK_TCP};
    int idle_fds[30], open = 0;
    char byte;

    (void)state;
    start(&world);
    world.client->ops->close(world.client);
    to.sin_port = htons((uint16_t)atoi(strchr(world.address, ':') + 1));
    world.client = NULL;
    for (int i = 0; i < 30; i++) {
        idle_fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(idle_fds[i], (struct sockaddr *)&to, sizeof(to)), 0);
        turn(&world);
    }
    world.client = open_client(&world, "board-1", '1');
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    for (int i = 0; i < 30; i++) {
        open += recv(idle_fds[i], &byte, 1, MSG_DONTWAIT) < 0;
        close(idle_fds[i]);
    }
    assert_in_range(open, 1, 10);
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_board_too_many_is_told_to_come_back),
        cmocka_unit_test(a_board_that_asks_too_often_is_told_so_and_others_are_served),
        cmocka_unit_test(requests_with_a_path_that_cannot_be_read_count_too),
        cmocka_unit_test(a_model_is_handed_out_no_faster_than_a_board_may_have_it),
        cmocka_unit_test(a_flood_of_hellos_without_a_cookie_keeps_nobody_out),
        cmocka_unit_test(connections_that_say_nothing_make_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
