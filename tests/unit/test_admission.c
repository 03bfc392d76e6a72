// Which frames a job admits, sent as a board sends them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/aggregator_world.h"

// Boards a and b are groups of their own; a round is open.
static int open_round(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    struct cn_round_info info = {0};
    world_init(world);
    assert_int_equal(world_enroll(world, "a", "a", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    assert_true(world_get_round(world, "a", &info));
    assert_true(world_get_round(world, "b", &info));
    assert_int_equal(world_tick(world, 50), CN_OK);
    *state = world;
    return 0;
}

// Sends a frame of "b" that is encoded in this mode.
static void send_as(struct aggregator_world *world, enum cn_update_mode mode,
                    struct cn_upload_status *status)
{
    const struct cn_update_rule rule = world->job.up;
    struct cn_round_info info = {0};
    struct cn_buffer frame = {0};
    assert_true(world_get_round(world, "b", &info));
    world->job.up = (struct cn_update_rule){.mode = mode, .density = 0.1, .value_bits = 2};
    world_make_frame(world, &info, "b", 0, &frame);
    world->job.up = rule;
    assert_true(world_send(world, "b", &info, &frame, status));
    cn_buffer_deinit(&frame);
}

static void an_encoding_that_the_job_does_not_have_is_refused(void **state)
{
    struct cn_upload_status status = {0};
    send_as(*state, CN_UPDATE_RAW32, &status);
    assert_int_equal(status.verdict, CN_VERDICT_REJECTED);
    assert_string_equal(status.reason, "the frame is encoded as raw32, and update.up.mode is topk");
    send_as(*state, CN_UPDATE_TOPK, &status);
    assert_int_equal(status.verdict, CN_VERDICT_ACCEPTED);
}

// Its board may have no bytes left today.
static void any_group_may_skip(void **state)
{
    struct cn_upload_status status = {0};
    send_as(*state, CN_UPDATE_SKIP, &status);
    assert_int_equal(status.verdict, CN_VERDICT_ACCEPTED);
}

static void with_auto_any_encoding_is_admitted(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_upload_status status = {0};
    world->job.up.mode = CN_UPDATE_AUTO;
    send_as(world, CN_UPDATE_RAW32, &status);
    assert_int_equal(status.verdict, CN_VERDICT_ACCEPTED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_round, world_close)
    const struct CMUnitTest tests[] = {
        TEST(an_encoding_that_the_job_does_not_have_is_refused),
        TEST(any_group_may_skip),
        TEST(with_auto_any_encoding_is_admitted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
