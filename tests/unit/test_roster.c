// The boards as the running aggregator knows them, while another process writes to the ledger.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "tests/unit/aggregator_world.h"

static void revoke_another(void *context, const char *board)
{
    assert_string_equal(board, "a");
    assert_int_equal(cn_ledger_revoke(context, "b"), CN_OK);
}

// The revocation of b is written after the boards were read and before the key epochs are.
static void a_board_that_counts_as_enrolled_is_not_served_newer_keys(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    struct cn_ledger *other;
    (void)state;
    assert_non_null(world);
    world_init(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "g", 0), CN_OK);
    assert_int_equal(world_enroll(world, "c", "g", 0), CN_OK);
    assert_int_equal(cn_roster_open(world->ledger, &world->roster), CN_OK);
    assert_int_equal(cn_ledger_open(world->directory, &other), CN_OK);

    assert_int_equal(cn_ledger_revoke(other, "a"), CN_OK);
    assert_int_equal(cn_roster_refresh(world->roster, revoke_another, other), CN_OK);
    assert_non_null(cn_roster_find(world->roster, "b"));
    assert_int_equal(cn_roster_find_group(world->roster, "g")->key_epoch, 1);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_null(cn_roster_find(world->roster, "b"));
    assert_int_equal(cn_roster_find_group(world->roster, "g")->key_epoch, 2);

    cn_ledger_close(other);
    world_deinit(world);
    free(world);
}

static void a_run_says_how_long_it_waits_for_an_absent_group(void **state)
{
    static const char *const boards[] = {"x-1", "x-2", "x-3"};
    static const char *const groups[] = {"x", "y", "z"};
    struct aggregator_world world;
    struct cn_run_state run;
    (void)state;
    world_init(&world);
    world.job.over_select = 1.5; // three groups for a quorum of two
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_enroll(&world, boards[i], groups[i], 0), CN_OK);
    assert_int_equal(world_start(&world), CN_OK);
    world_register(&world, "x-1");
    assert_int_equal(cn_run_tick(world.run, world_now_ms), CN_OK);
    cn_run_get_state(world.run, world_now_ms, &run);
    assert_int_equal(run.settling_ms, 0); // fewer than the quorum
    world_register(&world, "x-2");
    assert_int_equal(cn_run_tick(world.run, world_now_ms), CN_OK);
    cn_run_get_state(world.run, world_now_ms + 1000, &run);
    assert_int_equal(run.phase, CN_RUN_GATHER);
    assert_int_equal(run.settling_ms, 2000);
    world_now_ms += 3000;
    assert_int_equal(cn_run_tick(world.run, world_now_ms), CN_OK);
    cn_run_get_state(world.run, world_now_ms, &run);
    assert_int_equal(run.phase, CN_RUN_OPEN);
    assert_int_equal(run.settling_ms, 0);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_says_how_long_it_waits_for_an_absent_group),
        cmocka_unit_test(a_board_that_counts_as_enrolled_is_not_served_newer_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
