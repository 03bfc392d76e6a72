// Requests, sessions and keys over DTLS on the loopback interface.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coap_world.h"

static void a_request_reaches_its_handler_and_the_answer_carries_the_tag(void **state)
{
    struct coap_world world = {.value = 5};
    struct cn_coap_server_stats stats;
    struct cn_exchange_stats client_stats;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.tag = 77, .method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    assert_int_equal(world.replies[0].tag, 77);
    assert_int_equal(world.replies[0].code, CN_COAP_CONTENT);
    assert_string_equal(world.bodies[0], "board-1 5");
    cn_coap_server_stats(world.server, &stats);
    client_stats = world.client->stats;
    assert_int_equal(stats.sessions, 1);
    assert_int_equal(stats.handshakes[CN_COAP_HANDSHAKE_OK], 1);
    assert_int_equal(stats.requests[CN_COAP_CONTENT >> 5], 1);
    assert_int_equal(stats.requests[CN_COAP_NOT_FOUND >> 5], 0);
    assert_int_equal(stats.in.messages, 4 + 8 + 2);
    assert_int_equal(stats.out.messages, 4 + 8 + 1 + 9);
    assert_int_equal(stats.in.payload, 0);
    assert_int_equal(stats.out.payload, 9);
    // IPv4, UDP, the record's header with a connection ID to the server, content, tag.
    assert_int_equal(stats.in.wire, 20 + 8 + 13 + 8 + 16 + 16);
    assert_int_equal(stats.out.wire, 20 + 8 + 13 + (4 + 8 + 1 + 9) + 16);
    assert_memory_equal(&client_stats.up, &stats.in, sizeof(stats.in));
    assert_memory_equal(&client_stats.down, &stats.out, sizeof(stats.out));
    assert_int_equal(client_stats.up.messages, stats.in.messages);
    assert_int_equal(client_stats.down.messages, stats.out.messages);
    stop(&world);
}

static void a_silent_request_is_answered_only_when_it_fails(void **state)
{
    struct coap_world world = {0};
    struct cn_exchange_request put = {
        .tag = 1, .method = CN_COAP_PUT, .path = "u/a/7", .body = (const uint8_t *)"xy", .size = 2};

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    put.silent = true;
    request(&world, &put);
    idle(&world, 50);
    assert_int_equal(world.requests, 1);
    assert_int_equal(world.reply_count, 0);
    assert_false(world.wanted_reply);
    put.path = "u/b";
    request(&world, &put);
    wait_replies(&world, 1);
    assert_int_equal(world.replies[0].code, CN_COAP_CONFLICT);
    assert_string_equal(world.bodies[0], "path b, 2 bytes");
    put.path = "u/a/7";
    put.silent = false;
    request(&world, &put);
    wait_replies(&world, 2);
    assert_int_equal(world.replies[1].code, CN_COAP_CHANGED);
    assert_true(world.wanted_reply);
    stop(&world);
}

static void unknown_paths_and_wrong_methods_are_told_apart(void **state)
{
    struct coap_world world = {0};
    struct cn_coap_server_stats stats;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "rr"});
    wait_replies(&world, 1);
    assert_int_equal(world.replies[0].code, CN_COAP_NOT_FOUND);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_DELETE, .path = "r"});
    wait_replies(&world, 2);
    assert_int_equal(world.replies[1].code, CN_COAP_METHOD_NOT_ALLOWED);
    request(&world,
            &(struct cn_exchange_request){.method = CN_COAP_GET, .path = ".well-known/core"});
    wait_replies(&world, 3);
    assert_int_equal(world.replies[2].code, CN_COAP_NOT_FOUND);
    cn_coap_server_stats(world.server, &stats);
    assert_int_equal(stats.requests[CN_COAP_NOT_FOUND >> 5], 3);
    stop(&world);
}

static void observe(enum cn_link_transport transport)
{
    struct coap_world world = {.value = 1, .transport = transport};
    struct cn_coap_server_stats stats;
    uint32_t sequence;
    uint64_t arrived;

    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){
                        .tag = 9, .method = CN_COAP_GET, .path = "r", .observe = true});
    wait_replies(&world, 1);
    assert_true(world.replies[0].observed);
    assert_int_equal(world.notifications, 0);
    cn_coap_server_stats(world.server, &stats);
    arrived = stats.in.messages;
    sequence = world.replies[0].sequence;
    for (int i = 0; i < 6; i++) { // libcoap confirms every sixth
        world.value = 2 + i;
        cn_coap_server_notify(world.server, "r");
        wait_replies(&world, 2 + i);
    }
    assert_int_equal(world.replies[6].tag, 9);
    assert_true(world.replies[6].sequence > sequence);
    assert_string_equal(world.bodies[6], "board-1 7");
    assert_int_equal(world.notifications, 6);
    cn_coap_server_stats(world.server, &stats);
    assert_int_equal(stats.in.messages, arrived); // nothing came from the board
    stop(&world);
}

static void observers_are_told_of_changes(void **state)
{
    (void)state;
    observe(CN_LINK_UDP);
    observe(CN_LINK_TCP);
}

// A board may have any number of observers.
static void notifications_have_a_limit_of_their_own(void **state)
{
    struct coap_world world = {.requests_per_s = 1};
    int told = 0;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){
                        .tag = 9, .method = CN_COAP_GET, .path = "r", .observe = true});
    wait_replies(&world, 1);
    while (world.replies[0].code == CN_COAP_CONTENT && told++ < 50) {
        world.reply_count = 0;
        cn_coap_server_notify(world.server, "r");
        wait_replies(&world, 1);
    }
    assert_int_equal(world.replies[0].code, CN_COAP_TOO_MANY);
    cn_coap_server_notify(world.server, "r"); // nobody observes any more
    idle(&world, 50);
    assert_int_equal(world.reply_count, 1);
    stop(&world);
}

static void a_wrong_key_and_an_unknown_board_are_refused_alike(void **state)
{
    char first[160];
    const char *text;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct coap_world world = {0};

        start(&world);
        world.client->ops->close(world.client);
        world.client = open_client(&world, i ? "stranger" : "board-1", i ? '1' : 'x');
        wait_for(&world, CN_EXCHANGE_REFUSED);
        text = strchr(world.client->text, ' ');
        assert_non_null(text);
        if (i)
            assert_string_equal(text, first);
        snprintf(first, sizeof(first), "%s", text);
        idle(&world, 100); // no second handshake at once
        assert_int_equal(state_of(world.client), CN_EXCHANGE_REFUSED);
        assert_int_equal(world.requests, 0);
        stop(&world);
    }
}

static void a_refused_board_asks_again_and_is_let_in(void **state)
{
    const char *address;
    struct coap_world world = {.revoked = true};
    struct cn_coap_client_config config = {
        .board = "board-1", .addresses = &address, .address_count = 1, .retry_max_ms = 200};

    (void)state;
    start(&world);
    world.client->ops->close(world.client);
    address = world.address;
    memset(config.key, '1', sizeof(config.key));
    assert_int_equal(cn_coap_client_open(&config, &world.client), CN_OK);
    wait_for(&world, CN_EXCHANGE_REFUSED);
    world.revoked = false;
    wait_long_for(&world, CN_EXCHANGE_UP);
    stop(&world);
}

static void a_dropped_board_is_cut_off_at_once(void **state)
{
    struct coap_world world = {0};

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    world.revoked = true;
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    cn_coap_server_drop(world.server, "board-1");
    wait_for(&world, CN_EXCHANGE_REFUSED);
    assert_int_equal(world.requests, 1);
    stop(&world);
}

static void a_port_in_use_is_reported(void **state)
{
    struct coap_world world = {0};
    struct coap_world second = {0};

    (void)state;
    start(&world);
    cn_log_set_level((enum cn_log_level) - 1);
    snprintf(second.address, sizeof(second.address), "%s", world.address);
    assert_int_equal(open_server(&second), CN_EEXIST);
    stop(&world);
}

static void a_client_finds_a_restarted_server_again(void **state)
{
    struct coap_world world = {0};

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    cn_coap_server_close(world.server);
    world.server = NULL;
    wait_for(&world, CN_EXCHANGE_DOWN);
    assert_int_equal(open_server(&world), CN_OK);
    wait_for(&world, CN_EXCHANGE_UP);
    assert_int_equal(world.client->sessions, 2);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 2);
    stop(&world);
}

static void the_newest_session_of_a_board_ends_the_older_one(void **state)
{
    struct coap_world world = {0};
    struct cn_coap_server_stats stats;
    struct cn_exchange *first;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    first = world.client;
    world.client = open_client(&world, "board-1", '1');
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 2);
    idle(&world, 5);
    cn_coap_server_stats(world.server, &stats);
    assert_int_equal(stats.sessions, 1);
    first->ops->close(first);
    stop(&world);
}

static void names_are_looked_up_and_a_second_address_is_tried(void **state)
{
    struct coap_world world = {0};
    const char *addresses[2];
    char dead[32], name[32];
    struct cn_coap_client_config config = {
        .board = "board-1", .addresses = addresses, .address_count = 2};

    (void)state;
    start(&world);
    world.client->ops->close(world.client);
    free_address(dead);
    snprintf(name, sizeof(name), "localhost:%s", strchr(world.address, ':') + 1);
    addresses[0] = dead;
    addresses[1] = name;
    memset(config.key, '1', sizeof(config.key));
    assert_int_equal(cn_coap_client_open(&config, &world.client), CN_OK);
    wait_for(&world, CN_EXCHANGE_UP);
    addresses[1] = "no port";
    assert_int_equal(cn_coap_client_open(&config, &world.client), CN_EINVAL);
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_reaches_its_handler_and_the_answer_carries_the_tag),
        cmocka_unit_test(a_silent_request_is_answered_only_when_it_fails),
        cmocka_unit_test(unknown_paths_and_wrong_methods_are_told_apart),
        cmocka_unit_test(observers_are_told_of_changes),
        cmocka_unit_test(notifications_have_a_limit_of_their_own),
        cmocka_unit_test(a_wrong_key_and_an_unknown_board_are_refused_alike),
        cmocka_unit_test(a_refused_board_asks_again_and_is_let_in),
        cmocka_unit_test(a_dropped_board_is_cut_off_at_once),
        cmocka_unit_test(a_port_in_use_is_reported),
        cmocka_unit_test(a_client_finds_a_restarted_server_again),
        cmocka_unit_test(the_newest_session_of_a_board_ends_the_older_one),
        cmocka_unit_test(names_are_looked_up_and_a_second_address_is_tried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
