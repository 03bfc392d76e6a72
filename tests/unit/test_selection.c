// Which groups are invited to a round.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/run/selection.h"
#include "tests/unit/aggregator_world.h"

#define ROUNDS 12

static const char *const boards[] = {"a", "b", "c1", "c2"};

static int open_world(void **state)
{
    struct aggregator_world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world_init(world);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(world_enroll(world, boards[i], i < 2 ? boards[i] : "c", 0), CN_OK);
    world->job.quorum = 9; // no round opens by itself
    assert_int_equal(world_start(world), CN_OK);
    for (size_t i = 0; i < 4; i++)
        world_register(world, boards[i]);
    *state = world;
    return 0;
}

// Invites at most count groups to a round. Returns the number that was invited.
static uint32_t invite(struct aggregator_world *world, uint32_t round, uint32_t count)
{
    const struct cn_selection selection = {.ledger = world->ledger,
                                           .roster = world->roster,
                                           .seed = 5,
                                           .round = round,
                                           .now_ms = world_now_ms,
                                           .live_ms = 120000};
    uint32_t invited = 0;
    assert_int_equal(cn_selection_invite(&selection, count, &invited), CN_OK);
    return invited;
}

// Invites one group to each of ROUNDS rounds. Returns in how many it was this one.
static unsigned count_first(struct aggregator_world *world, uint32_t first, const char *group)
{
    unsigned found = 0;
    for (uint32_t round = first; round < first + ROUNDS; round++) {
        bool selected;
        assert_int_equal(cn_ledger_open_round(world->ledger, round), CN_OK);
        assert_int_equal(invite(world, round, 1), 1);
        assert_int_equal(cn_ledger_is_selected(world->ledger, round, group, &selected), CN_OK);
        found += selected;
        assert_int_equal(invite(world, round, 3), 2); // the others come after it
    }
    return found;
}

static void report(struct aggregator_world *world, const char *board, const char *error)
{
    struct cn_health health = {.state = error[0] ? CN_HEALTH_FAILED : CN_HEALTH_TRAINING,
                               .error_code = error[0] != 0};
    snprintf(health.error, sizeof(health.error), "%s", error);
    world_now_ms += CN_HEALTH_SHORTEST_MS;
    cn_roster_report(world->roster, board, &health, world_now_ms);
}

static void a_group_whose_boards_all_report_a_fault_is_invited_last(void **state)
{
    struct aggregator_world *world = *state;
    uint32_t round = 1;
    assert_in_range(count_first(world, round, "a"), 1, ROUNDS - 1);
    cn_roster_blame(world->roster, "a", "labels.npy: 12 rows", 0, world_now_ms);
    assert_int_equal(count_first(world, round += ROUNDS, "a"), 0);
    cn_roster_blame(world->roster, "a", "", 0, world_now_ms); // it registered without a fault
    assert_in_range(count_first(world, round += ROUNDS, "a"), 1, ROUNDS - 1);
    report(world, "a", "the disk is full");
    assert_int_equal(count_first(world, round += ROUNDS, "a"), 0);
    report(world, "a", "");
    assert_in_range(count_first(world, round += ROUNDS, "a"), 1, ROUNDS - 1);
}

static void a_group_with_a_board_that_can_train_keeps_its_turn(void **state)
{
    struct aggregator_world *world = *state;
    report(world, "c1", "the disk is full");
    assert_in_range(count_first(world, 1, "c"), 1, ROUNDS - 1);
    report(world, "c2", "the disk is full");
    assert_int_equal(count_first(world, 1 + ROUNDS, "c"), 0);
}

// Records that an update of the group counts in an open round.
static void deliver(struct aggregator_world *world, uint32_t round, const char *group)
{
    struct cn_ledger_contribution contribution = {.round = round, .size = 1, .weight = 1};
    snprintf(contribution.group, sizeof(contribution.group), "%s", group);
    snprintf(contribution.board, sizeof(contribution.board), "%s", group);
    assert_int_equal(cn_ledger_accept(world->ledger, &contribution), CN_OK);
}

static void a_group_that_was_left_out_is_invited_before_others_are_again(void **state)
{
    struct aggregator_world *world = *state;
    static const char *const groups[] = {"a", "b", "c"};
    unsigned invited[3] = {0};
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        assert_int_equal(cn_ledger_open_round(world->ledger, round), CN_OK);
        assert_int_equal(invite(world, round, 1), 1);
        for (size_t g = 0; g < 3; g++) {
            bool selected;
            assert_int_equal(cn_ledger_is_selected(world->ledger, round, groups[g], &selected),
                             CN_OK);
            invited[g] += selected;
            if (selected)
                deliver(world, round, groups[g]);
            assert_in_range(invited[g], round / 3, (round + 2) / 3);
        }
    }
}

// Opens a round and invites one group, which delivers unless it is the late one. Returns its name.
static const char *take_turn(struct aggregator_world *world, uint32_t round, const char *late)
{
    static const char *const groups[] = {"a", "b", "c"};
    const char *found = "";
    assert_int_equal(cn_ledger_open_round(world->ledger, round), CN_OK);
    assert_int_equal(invite(world, round, 1), 1);
    for (size_t g = 0; g < 3; g++) {
        bool selected;
        assert_int_equal(cn_ledger_is_selected(world->ledger, round, groups[g], &selected), CN_OK);
        found = selected ? groups[g] : found;
    }
    assert_true(found[0]);
    if (!late || strcmp(found, late) != 0)
        deliver(world, round, found);
    assert_int_equal(cn_ledger_close_round(world->ledger, round), CN_OK);
    return found;
}

static void a_group_that_was_late_is_asked_again_at_once(void **state)
{
    struct aggregator_world *world = *state;
    for (uint32_t round = 1; round <= 3; round++)
        take_turn(world, round, NULL);
    const char *late = take_turn(world, 4, NULL), *other = take_turn(world, 5, NULL);
    const char *last = take_turn(world, 6, NULL); // the order of turns is known
    assert_string_equal(take_turn(world, 7, late), late);
    assert_string_equal(take_turn(world, 8, NULL), late);
    assert_string_equal(take_turn(world, 9, NULL), other);
    assert_string_equal(take_turn(world, 10, NULL), last);
    assert_string_equal(take_turn(world, 11, NULL), late);
}

static void a_group_that_is_late_in_its_first_round_is_asked_again_at_once(void **state)
{
    struct aggregator_world *world = *state;
    const char *late = take_turn(world, 1, "a");
    if (strcmp(late, "a") != 0) // whichever is first by its rank
        late = take_turn(world, 2, "a");
    if (strcmp(late, "a") != 0)
        late = take_turn(world, 3, "a");
    assert_string_equal(late, "a");
    struct cn_ledger_round newest;
    assert_int_equal(cn_ledger_newest_round(world->ledger, &newest), CN_OK);
    assert_string_equal(take_turn(world, newest.number + 1, NULL), "a");
}

static void a_group_that_is_always_late_takes_one_place_more(void **state)
{
    struct aggregator_world *world = *state;
    unsigned asked = 0, again = 0;
    const char *before = "";
    for (uint32_t round = 1; round <= 30; round++) {
        const char *group = take_turn(world, round, "b");
        asked += strcmp(group, "b") == 0;
        again += strcmp(group, before) == 0;
        before = group;
    }
    assert_in_range(asked, 10, 11);
    assert_int_equal(again, 1);
}

static void say_rests(struct aggregator_world *world, const char *board, uint64_t flags)
{
    struct cn_health health = {.state = CN_HEALTH_IDLE, .flags = flags};
    world_now_ms += CN_HEALTH_SHORTEST_MS;
    cn_roster_report(world->roster, board, &health, world_now_ms);
}

static void a_group_in_which_nobody_may_train_is_not_invited(void **state)
{
    struct aggregator_world *world = *state;
    bool selected;
    say_rests(world, "a", CN_HEALTH_RESTS);
    say_rests(world, "c1", CN_HEALTH_RESTS); // its group has another board
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 2);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(invite(world, 1, 3), 2);
    assert_int_equal(cn_ledger_is_selected(world->ledger, 1, "a", &selected), CN_OK);
    assert_false(selected);
    say_rests(world, "c2", CN_HEALTH_LOOKS_ON);
    say_rests(world, "b", CN_HEALTH_LOOKS_ON); // all members count then: no charge mends that
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 1);
    say_rests(world, "a", 0);
    say_rests(world, "c1", 0);
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 3);
}

static void mark(struct aggregator_world *world, const char *text)
{
    struct cn_rule rule;
    char reason[CN_DIAG_LINE_SIZE];
    assert_int_equal(cn_rule_parse(text, reason, &rule), CN_OK);
    cn_roster_mark_unfit(world->roster, &rule, "set", world_now_ms);
}

static void a_group_with_a_board_that_does_not_meet_the_rule_is_not_invited(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_health health = {.state = CN_HEALTH_IDLE, .battery = 30, .left_kib = UINT32_MAX};
    bool selected;
    mark(world, "name != c2 and cores >= 1");
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 2);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(invite(world, 1, 3), 2);
    assert_int_equal(cn_ledger_is_selected(world->ledger, 1, "c", &selected), CN_OK);
    assert_false(selected);
    mark(world, "battery >= 20 and bytes >= 1 MiB"); // which no board has told yet
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 0);
    world_now_ms += CN_HEALTH_SHORTEST_MS;
    cn_roster_report(world->roster, "a", &health, world_now_ms);
    mark(world, "battery >= 20 and bytes >= 1 MiB");
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 1);
    mark(world, "battery >= 40");
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 0);
    cn_roster_mark_unfit(world->roster, NULL, "set", world_now_ms);
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 3);
}

static void say_samples_of(struct aggregator_world *world, const char *board, uint64_t samples,
                           uint64_t run)
{
    struct cn_health health = {
        .state = CN_HEALTH_IDLE, .samples = samples, .samples_run = (uint32_t)run};
    world_now_ms += CN_HEALTH_SHORTEST_MS;
    cn_roster_report(world->roster, board, &health, world_now_ms);
}

static void say_samples(struct aggregator_world *world, const char *board, uint64_t samples)
{
    say_samples_of(world, board, samples, 0); // a board of an earlier release says no run
}

static void a_group_with_too_few_samples_is_not_invited(void **state)
{
    struct aggregator_world *world = *state;
    bool selected;
    mark(world, "data.set >= 500"); // which no board has told yet
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 0);
    say_samples(world, "a", 500);
    say_samples(world, "b", 499);
    say_samples(world, "c1", 800);
    say_samples(world, "c2", 100);
    mark(world, "data.set >= 500");
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 1);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(invite(world, 1, 3), 1);
    assert_int_equal(cn_ledger_is_selected(world->ledger, 1, "a", &selected), CN_OK);
    assert_true(selected);
    mark(world, "data.set >= 100");
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 3);
    mark(world, "data.other >= 1"); // not the job's set
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 0);
    mark(world, "data.set >= 100");
    world_now_ms += CN_HEALTH_FRESH_MS + 1; // what was said long ago says nothing about now
    mark(world, "data.set >= 100");
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 1000000), 0);
}

// A board that serves several jobs still reports the samples of the job before for a while.
static void samples_of_another_run_count_for_nothing(void **state)
{
    struct aggregator_world *world = *state;
    uint64_t run = cn_ledger_identity(world->ledger)->run;
    const char *names[] = {"a", "b", "c1", "c2"};
    for (size_t i = 0; i < 4; i++)
        say_samples_of(world, names[i], 900, run + 1);
    mark(world, "data.set >= 1");
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 0);
    say_samples_of(world, "a", 500, run);
    say_samples_of(world, "b", 100, run);
    say_samples_of(world, "a", 100, run + 1); // what it said of this run stays
    say_samples_of(world, "b", 900, run + 1);
    mark(world, "data.set >= 500");
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 1);
    say_samples_of(world, "a", 0, 0); // beside an error
    mark(world, "data.set >= 1");
    assert_int_equal(cn_selection_live(world->roster, world_now_ms, 120000), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_group_whose_boards_all_report_a_fault_is_invited_last,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_group_with_a_board_that_can_train_keeps_its_turn,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(
            a_group_that_was_left_out_is_invited_before_others_are_again, open_world, world_close),
        cmocka_unit_test_setup_teardown(a_group_that_was_late_is_asked_again_at_once, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(
            a_group_that_is_late_in_its_first_round_is_asked_again_at_once, open_world,
            world_close),
        cmocka_unit_test_setup_teardown(
            a_group_with_a_board_that_does_not_meet_the_rule_is_not_invited, open_world,
            world_close),
        cmocka_unit_test_setup_teardown(a_group_with_too_few_samples_is_not_invited, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(samples_of_another_run_count_for_nothing, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_group_in_which_nobody_may_train_is_not_invited,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_group_that_is_always_late_takes_one_place_more,
                                        open_world, world_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
