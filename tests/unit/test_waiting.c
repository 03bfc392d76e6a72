// How long a round waits for groups, and what the log says meanwhile.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/aggregator_world.h"
#include "tests/unit/log_capture.h"

// The groups a, b and c have a board each. Two make a round, and the third is invited if it is
// here.
static int open_world(void **state)
{
    static const char *const boards[] = {"a", "b", "c"};
    struct aggregator_world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world_init(world);
    world->job.over_select = 1.5;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(world_enroll(world, boards[i], boards[i], 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    *state = world;
    return 0;
}

static enum cn_run_phase tick(struct aggregator_world *world, uint64_t ms)
{
    struct cn_run_state state;
    assert_int_equal(world_tick(world, ms), CN_OK);
    cn_run_get_state(world->run, world_now_ms, &state);
    return state.phase;
}

// The groups a and b make the version of the open round.
static void make_version(struct aggregator_world *world)
{
    assert_true(world_take_part(world, "a", "a"));
    assert_true(world_take_part(world, "b", "b"));
    for (int i = 0; i < 10 && tick(world, 1) != CN_RUN_GATHER; i++)
        ;
}

static void only_the_first_round_waits_for_a_group_that_never_came(void **state)
{
    struct aggregator_world *world = *state;
    world_register(world, "a");
    world_register(world, "b");
    assert_int_equal(tick(world, 10), CN_RUN_GATHER);
    assert_int_equal(tick(world, 2900), CN_RUN_GATHER);
    assert_int_equal(tick(world, 3000), CN_RUN_OPEN);
    make_version(world);
    assert_int_equal(tick(world, 10), CN_RUN_OPEN);
}

static void a_group_of_the_last_round_that_is_silent_now_is_waited_for(void **state)
{
    struct aggregator_world *world = *state;
    for (const char *board = "abc"; *board; board++)
        world_register(world, (const char[]){*board, '\0'});
    assert_int_equal(tick(world, 10), CN_RUN_OPEN);
    make_version(world);
    world_now_ms += 200000; // the way to all was cut
    assert_int_equal(tick(world, 10), CN_RUN_GATHER);
    cn_roster_hear(world->roster, "a", world_now_ms);
    cn_roster_hear(world->roster, "b", world_now_ms);
    assert_int_equal(tick(world, 10), CN_RUN_GATHER);
    assert_int_equal(tick(world, 2000), CN_RUN_GATHER);
    cn_roster_hear(world->roster, "c", world_now_ms);
    assert_int_equal(tick(world, 10), CN_RUN_OPEN);
}

static void a_group_that_was_silent_in_the_last_round_is_not_waited_for(void **state)
{
    struct aggregator_world *world = *state;
    for (const char *board = "abc"; *board; board++)
        world_register(world, (const char[]){*board, '\0'});
    assert_int_equal(tick(world, 10), CN_RUN_OPEN);
    make_version(world);
    for (int round = 0; round < 2; round++) {
        world_now_ms += 130000;
        cn_roster_hear(world->roster, "a", world_now_ms);
        cn_roster_hear(world->roster, "b", world_now_ms);
        // c is waited for once, since it was here in round 1.
        assert_int_equal(tick(world, 10), round ? CN_RUN_OPEN : CN_RUN_GATHER);
        if (round == 0) {
            assert_int_equal(tick(world, 3000), CN_RUN_OPEN);
            make_version(world);
        }
    }
}

static void the_log_names_who_is_missing_and_less_and_less_often(void **state)
{
    struct aggregator_world *world = *state;
    struct log_capture capture;
    unsigned named, lines;
    world_register(world, "a");
    log_capture_begin(&capture);
    for (unsigned second = 0; second < 4 * 3600; second++) {
        cn_roster_hear(world->roster, "a", world_now_ms);
        tick(world, 1000);
    }
    lines = log_capture_end(
        &capture, "round 1 waits for 2 groups; 3 are enrolled, 1 is here; not here: b, c", &named);
    assert_int_equal(lines, 9); // at 0, 1, 3, 7, 15, 31, 63, 123, 183 minutes
    assert_int_equal(named, lines - 1);
}

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, open_world, world_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(only_the_first_round_waits_for_a_group_that_never_came),
        WORLD_TEST(a_group_of_the_last_round_that_is_silent_now_is_waited_for),
        WORLD_TEST(a_group_that_was_silent_in_the_last_round_is_not_waited_for),
        WORLD_TEST(the_log_names_who_is_missing_and_less_and_less_often),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
