// A board rests for an update of its system when its round has ended, not before.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "runtime/round/upkeep/hold.h"
#include "runtime/round/upkeep/upkeep.h"
#include "tests/support/board_tree.h"
#include "tests/support/flaky_store.h"

static const struct cn_progress training = {.phase = CN_PHASE_TRAIN, .round = 7, .step = 3};
static const struct cn_progress sending = {.phase = CN_PHASE_SEND, .round = 7};
static const struct cn_progress resting = {.phase = CN_PHASE_BASE, .round = 7};
static const struct cn_progress next_round = {.phase = CN_PHASE_TRAIN, .round = 8};

static void a_round_is_finished_and_delivered_first(void **state)
{
    struct cn_hold hold = {0};

    (void)state;
    assert_false(cn_hold_decide(&hold, false, &resting, 1000));
    assert_false(cn_hold_decide(&hold, true, &training, 2000));
    assert_false(cn_hold_decide(&hold, true, &sending, 3000));
    assert_true(cn_hold_decide(&hold, true, &resting, 4000));
    // The epoch is left, and what it said last must not end the rest.
    assert_true(cn_hold_decide(&hold, true, &training, 5000));
    assert_false(cn_hold_decide(&hold, false, &training, 6000));
}

static void a_board_between_rounds_rests_at_once(void **state)
{
    const struct cn_progress empty = {.phase = CN_PHASE_EMPTY};
    struct cn_hold hold = {0};

    (void)state;
    assert_true(cn_hold_decide(&hold, true, &resting, 1000));
    hold = (struct cn_hold){0};
    assert_true(cn_hold_decide(&hold, true, &empty, 1000));
}

static void a_round_that_begins_too_soon_is_left(void **state)
{
    struct cn_hold hold = {0};

    (void)state;
    assert_false(cn_hold_decide(&hold, true, &training, 1000));
    assert_true(cn_hold_decide(&hold, true, &next_round, 1001));
}

static void a_file_that_was_left_behind_stops_nobody_for_ever(void **state)
{
    struct cn_hold hold = {0};

    (void)state;
    assert_true(cn_hold_decide(&hold, true, &resting, 1000));
    assert_true(cn_hold_decide(&hold, true, &resting, 1000 + CN_HOLD_LONGEST_MS));
    assert_false(cn_hold_decide(&hold, true, &resting, 1001 + CN_HOLD_LONGEST_MS));
    assert_false(cn_hold_decide(&hold, true, &next_round, 2000 + CN_HOLD_LONGEST_MS));
    assert_false(cn_hold_decide(&hold, false, &next_round, 3000 + CN_HOLD_LONGEST_MS));
    assert_true(cn_hold_decide(&hold, true, &resting, 4000 + CN_HOLD_LONGEST_MS));
}

static void upkeep_sees_the_file_and_the_end_of_a_round_between_two_readings(void **state)
{
    static struct cn_settings settings = {.name = "press-01"};
    static struct cn_upkeep care;
    struct cn_flaky_store flaky;
    char root[64], path[128];

    (void)state;
    cn_board_tree_make(root);
    cn_flaky_store_init(&flaky);
    assert_int_equal(cn_upkeep_init(&care, &settings, &flaky.store, root), CN_OK);
    assert_false(cn_upkeep_poll(&care, &training, 10000));
    cn_board_tree_put(root, "run/cairn-update/hold", "");
    assert_false(cn_upkeep_poll(&care, &training, 10500)); // it looks once a second
    assert_false(cn_upkeep_poll(&care, &training, 11000));
    assert_true(cn_upkeep_poll(&care, &resting, 11005));
    assert_int_equal(care.care.pause, CN_PAUSE_UPDATE);
    assert_false(cn_upkeep_poll(&care, &resting, 13000));
    snprintf(path, sizeof(path), "%s" CN_HOLD_FILE, root);
    assert_int_equal(remove(path), 0);
    assert_true(cn_upkeep_poll(&care, &resting, 14000));
    assert_int_equal(care.care.pause, CN_PAUSE_NONE);
    cn_upkeep_deinit(&care);
    cn_flaky_store_deinit(&flaky);
    cn_board_tree_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_is_finished_and_delivered_first),
        cmocka_unit_test(a_board_between_rounds_rests_at_once),
        cmocka_unit_test(a_round_that_begins_too_soon_is_left),
        cmocka_unit_test(a_file_that_was_left_behind_stops_nobody_for_ever),
        cmocka_unit_test(upkeep_sees_the_file_and_the_end_of_a_round_between_two_readings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
