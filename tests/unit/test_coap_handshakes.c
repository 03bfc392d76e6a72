// What the CoAP server counts: what became of handshakes, and the bytes of each board.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coap_world.h"

static const struct cn_exchange_request get = {.method = CN_COAP_GET, .path = "r"};

// Waits until handshakes with this result were counted, and for those that are still under way.
static uint64_t wait_count(struct coap_world *world, enum cn_coap_handshake result)
{
    uint64_t end = cn_platform_now_ms() + WAIT_MS;
    struct cn_coap_server_stats stats;

    do {
        turn(world);
        cn_coap_server_stats(world->server, &stats);
    } while (!stats.handshakes[result] && cn_platform_now_ms() < end);
    idle(world, 50);
    cn_coap_server_stats(world->server, &stats);
    return stats.handshakes[result];
}

// Expects these counts, one for each result.
static void expect(struct coap_world *world, const uint64_t counts[CN_COAP_HANDSHAKES])
{
    struct cn_coap_server_stats stats;

    cn_coap_server_stats(world->server, &stats);
    for (int i = 0; i < CN_COAP_HANDSHAKES; i++)
        assert_int_equal(stats.handshakes[i], counts[i]);
}

// A board that is refused tries several times.
static uint64_t refuse(struct coap_world *world, const char *board, int key,
                       enum cn_coap_handshake result)
{
    uint64_t count;

    world->client = open_client(world, board, key);
    wait_for(world, CN_EXCHANGE_REFUSED);
    world->client->ops->close(world->client);
    world->client = NULL;
    count = wait_count(world, result);
    assert_in_range(count, 1, 10);
    return count;
}

static void an_unknown_board_and_another_key_are_told_apart(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        struct coap_world world = {.transport = tcp ? CN_LINK_TCP : CN_LINK_UDP};
        uint64_t counts[CN_COAP_HANDSHAKES] = {[CN_COAP_HANDSHAKE_OK] = 1};

        start(&world);
        wait_for(&world, CN_EXCHANGE_UP);
        request(&world, &get);
        wait_replies(&world, 1);
        world.client->ops->close(world.client);
        counts[CN_COAP_HANDSHAKE_UNKNOWN] =
            refuse(&world, "stranger", '1', CN_COAP_HANDSHAKE_UNKNOWN);
        expect(&world, counts);
        counts[CN_COAP_HANDSHAKE_FAILED] = refuse(&world, "board-1", 'x', CN_COAP_HANDSHAKE_FAILED);
        expect(&world, counts);
        stop(&world);
    }
}

static void a_board_for_which_there_is_no_room_is_counted_once(void **state)
{
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
    for (int i = 2; i <= 3; i++) {
        request(&world, &get);
        wait_replies(&world, i);
    }
    expect(&world, (const uint64_t[]){[CN_COAP_HANDSHAKE_OK] = 1, [CN_COAP_HANDSHAKE_FULL] = 1});
    cn_coap_server_drop(world.server, "board-1");
    idle(&world, 5);
    request(&world, &get);
    wait_replies(&world, 4);
    cn_coap_server_drop(world.server, "board-2"); // a session that was counted ends
    idle(&world, 5);
    expect(&world, (const uint64_t[]){[CN_COAP_HANDSHAKE_OK] = 2, [CN_COAP_HANDSHAKE_FULL] = 1});
    first->ops->close(first);
    stop(&world);
}

static void a_connection_that_ends_before_it_names_a_board_is_unfinished(void **state)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct coap_world world = {0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    start(&world);
    to.sin_port = htons((uint16_t)atoi(strchr(world.address, ':') + 1));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    idle(&world, 5);
    close(fd);
    assert_int_equal(wait_count(&world, CN_COAP_HANDSHAKE_UNFINISHED), 1);
    stop(&world);
}

static void bytes_are_counted_for_each_board(void **state)
{
    struct coap_world world = {0};
    struct cn_link_bytes in, out, others_in, others_out;
    struct cn_coap_server_stats stats;
    struct cn_exchange *first;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    cn_coap_server_board_bytes(world.server, "board-1", &in, &out);
    assert_int_equal(in.messages + out.messages, 0);
    request(&world, &get);
    wait_replies(&world, 1);
    first = world.client;
    world.client = open_client(&world, "board-2", '2');
    wait_for(&world, CN_EXCHANGE_UP);
    for (int i = 2; i <= 3; i++) {
        request(&world, &get);
        wait_replies(&world, i);
    }
    cn_coap_server_stats(world.server, &stats);
    cn_coap_server_board_bytes(world.server, "board-1", &in, &out);
    cn_coap_server_board_bytes(world.server, "board-2", &others_in, &others_out);
    assert_int_equal(in.messages, 4 + 8 + 2);
    assert_int_equal(out.messages, 4 + 8 + 1 + 9);
    assert_int_equal(others_in.messages, 2 * in.messages);
    assert_int_equal(in.messages + others_in.messages, stats.in.messages);
    assert_int_equal(out.wire + others_out.wire, stats.out.wire);
    cn_coap_server_drop(world.server, "board-1"); // the count outlives the session
    idle(&world, 5);
    cn_coap_server_board_bytes(world.server, "board-1", &in, &out);
    assert_int_equal(in.messages, 4 + 8 + 2);
    first->ops->close(first);
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_board_and_another_key_are_told_apart),
        cmocka_unit_test(a_board_for_which_there_is_no_room_is_counted_once),
        cmocka_unit_test(a_connection_that_ends_before_it_names_a_board_is_unfinished),
        cmocka_unit_test(bytes_are_counted_for_each_board),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
