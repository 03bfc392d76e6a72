// Which boards are updated next: one of a group at a time, and what a result means.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "boards/flash/update/rollout.h"

#define BOARDS 4

static struct cn_board_row rows[BOARDS];
static struct cn_rollout_board boards[BOARDS];
static struct cn_rollout rollout;

static struct cn_rollout_facts facts_of(const char *group, const char *runs, const char *update,
                                        const char *update_version)
{
    struct cn_rollout_facts facts;

    snprintf(facts.group, sizeof(facts.group), "%s", group);
    snprintf(facts.slot_version, sizeof(facts.slot_version), "%s", runs);
    snprintf(facts.update, sizeof(facts.update), "%s", update);
    snprintf(facts.update_version, sizeof(facts.update_version), "%s", update_version);
    return facts;
}

static void note(size_t i, const char *runs, const char *update, const char *update_version)
{
    const struct cn_rollout_facts facts =
        facts_of(boards[i].facts.group, runs, update, update_version);

    cn_rollout_note(&rollout, &boards[i], &facts);
}

// Four boards, two in each of the groups "a" and "b"; all of version 1.
static int set_up(void **state)
{
    (void)state;
    memset(boards, 0, sizeof(boards));
    rollout = (struct cn_rollout){.version = "2", .boards = boards, .count = BOARDS};
    for (size_t i = 0; i < BOARDS; i++) {
        const struct cn_rollout_facts facts = facts_of(i < 2 ? "a" : "b", "1", "good", "1");

        boards[i].row = &rows[i];
        cn_rollout_note(&rollout, &boards[i], &facts);
    }
    return 0;
}

static void one_board_of_a_group_is_updated_at_a_time(void **state)
{
    (void)state;
    assert_ptr_equal(cn_rollout_begin(&rollout), &boards[0]);
    assert_ptr_equal(cn_rollout_begin(&rollout), &boards[2]);
    assert_null(cn_rollout_begin(&rollout));
    note(0, "2", "trying", "2");
    assert_null(cn_rollout_begin(&rollout));
    note(0, "2", "good", "2");
    assert_ptr_equal(cn_rollout_begin(&rollout), &boards[1]);
    assert_null(cn_rollout_begin(&rollout));
    note(2, "1", "rolled-back", "2");
    assert_int_equal(boards[2].state, CN_ROLLOUT_FAILED);
    assert_ptr_equal(cn_rollout_begin(&rollout), &boards[3]);
    assert_null(cn_rollout_begin(&rollout));
    assert_int_equal(cn_rollout_count(&rollout, CN_ROLLOUT_HAS), 1);
    assert_int_equal(cn_rollout_count(&rollout, CN_ROLLOUT_UPDATES), 2);
}

static void boards_that_have_the_version_are_passed_over(void **state)
{
    (void)state;
    note(0, "2", "good", "2");
    note(1, "2", "rolled-back", "3"); // what became of a later one
    note(2, "2", "trying", "2");      // not decided
    assert_int_equal(boards[0].state, CN_ROLLOUT_HAS);
    assert_int_equal(boards[1].state, CN_ROLLOUT_HAS);
    assert_ptr_equal(cn_rollout_begin(&rollout), &boards[2]);
}

static void an_earlier_result_decides_nothing(void **state)
{
    (void)state;
    note(0, "1", "rolled-back", "2"); // of yesterday
    assert_ptr_equal(cn_rollout_begin(&rollout), &boards[0]);
    note(0, "1", "rolled-back", "2");
    assert_int_equal(boards[0].state, CN_ROLLOUT_UPDATES);
    note(0, "2", "trying", "2");
    assert_int_equal(boards[0].state, CN_ROLLOUT_UPDATES);
    note(0, "1", "rolled-back", "2");
    assert_int_equal(boards[0].state, CN_ROLLOUT_FAILED);
}

static void results_of_other_versions_decide_nothing(void **state)
{
    (void)state;
    assert_ptr_equal(cn_rollout_begin(&rollout), &boards[0]);
    note(0, "3", "good", "3");
    note(0, "1", "failed", "3");
    note(0, "", "", "");
    assert_int_equal(boards[0].state, CN_ROLLOUT_UPDATES);
    note(0, "1", "failed", "2");
    assert_int_equal(boards[0].state, CN_ROLLOUT_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_board_of_a_group_is_updated_at_a_time, set_up),
        cmocka_unit_test_setup(boards_that_have_the_version_are_passed_over, set_up),
        cmocka_unit_test_setup(an_earlier_result_decides_nothing, set_up),
        cmocka_unit_test_setup(results_of_other_versions_decide_nothing, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
