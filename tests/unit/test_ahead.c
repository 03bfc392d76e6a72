// Boards that say that they hold a newer version than the gateway's ledger.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "log_capture.h"
#include "tests/unit/aggregator_world.h"

// Boards a and b are groups of their own.
static int start_gateway(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    world_init(world);
    assert_int_equal(world_enroll(world, "a", "a", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    *state = world;
    return 0;
}

static const struct cn_roster_facts *register_ahead(struct aggregator_world *world,
                                                    const char *board, uint64_t version)
{
    struct cn_register_request request = {
        .protocol = {2, CN_PROTOCOL_MAX},
        .update_format = {1, CN_UPDATE_FORMAT_MAX},
        .graph_ops = {1, CN_GRAPH_OPS_MAX},
        .facts = {.cpu_count = 1, .ahead_lineage = 1, .ahead_version = version}};
    uint8_t bytes[CN_MESSAGE_MAX];
    struct cn_coap_reply reply;
    size_t size;
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    world_ask(world, board, CN_COAP_POST, "reg", bytes, size, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    return &cn_roster_find(world->roster, board)->facts;
}

// Registers as a board, and returns whether a line has the text.
static bool says(struct aggregator_world *world, const char *board, const char *text)
{
    struct log_capture capture;
    unsigned with_text;
    log_capture_begin(&capture);
    register_ahead(world, board, 7);
    log_capture_end(&capture, text, &with_text);
    return with_text == 1;
}

static void one_group_of_several_is_not_believed_at_once(void **state)
{
    assert_true(
        says(*state, "a", "boards of 1 of 2 groups say so: if it was restored, run --restored"));
}

static void a_second_group_makes_it_advice(void **state)
{
    register_ahead(*state, "a", 5);
    register_ahead(*state, "a", 6);
    assert_true(
        says(*state, "b", "boards of 2 of 2 groups say so: run --restored goes on from here"));
}

static void a_version_that_no_run_reaches_is_not_believed(void **state)
{
    assert_int_equal(register_ahead(*state, "a", (1u << 20) + 1)->ahead_lineage, 0);
    assert_int_equal(register_ahead(*state, "a", 1u << 20)->ahead_lineage, 1);
    assert_int_equal(register_ahead(*state, "a", UINT64_MAX >> 1)->ahead_lineage, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start_gateway, world_close)
    const struct CMUnitTest tests[] = {
        TEST(one_group_of_several_is_not_believed_at_once),
        TEST(a_second_group_makes_it_advice),
        TEST(a_version_that_no_run_reaches_is_not_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
