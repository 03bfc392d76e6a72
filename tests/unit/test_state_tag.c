// The choice of the state that a group continues with.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/group/state_tag.h"
#include "runtime/round/checkpoint/checkpoint.h"

// In round 5 the group's update of round 4 has counted, unless a test says otherwise.
#define AT(PHASE, STEP)                                                                            \
    .lineage = 1, .run = 7, .round = 5, .phase = (PHASE), .step = (STEP), .counted_round = 4,      \
    .counted = {4}
#define OWN .counted_own = true

static uint32_t choose(struct cn_state_tag a, struct cn_state_tag b)
{
    const struct cn_state_tag *const tags[] = {&a, &b};
    const struct cn_state_tag *const turned[] = {&b, &a};
    uint32_t chosen = cn_state_tag_choose(tags, 2);

    // Which of them comes first only matters where they are alike.
    if (cn_state_tag_choose(turned, 2) == chosen)
        assert_int_equal(chosen, 0);
    return chosen;
}

static void of_one_lineage_the_furthest_is_taken(void **state)
{
    const struct cn_state_tag here = {AT(CN_PHASE_TRAIN, 10), OWN, .samples = 500};
    struct cn_state_tag other = here;

    (void)state;
    assert_int_equal(choose(here, other), 0);
    other.samples++;
    assert_int_equal(choose(here, other), 1);
    other.step = 9;
    assert_int_equal(choose(here, other), 0);
    other.phase = CN_PHASE_SEND;
    assert_int_equal(choose(here, other), 1);
    other.round = 4;
    assert_int_equal(choose(here, other), 0);
    other.run = 8;
    assert_int_equal(choose(here, other), 1);
    other.lineage = 0;
    assert_int_equal(choose(here, other), 0);
}

static void the_counted_lineage_is_taken_though_the_other_is_further(void **state)
{
    const struct cn_state_tag counted = {AT(CN_PHASE_TRAIN, 3), OWN};
    struct cn_state_tag other = {AT(CN_PHASE_TRAIN, 90), .samples = 9000};

    (void)state;
    assert_int_equal(choose(counted, other), 0);
    assert_int_equal(choose(other, counted), 1);
    other.round = 6;
    assert_int_equal(choose(counted, other), 0);
    other.counted_round = 5; // its own update of round 5 counts
    other.counted_own = true;
    assert_int_equal(choose(counted, other), 1);
}

static void an_outbox_that_counts_is_taken_though_its_members_do_not_know_yet(void **state)
{
    struct cn_state_tag waits = {AT(CN_PHASE_SEND, 4), OWN, .frame = {0xaa, 1}};
    struct cn_state_tag knows = {AT(CN_PHASE_BASE, 5)};

    (void)state;
    knows.round = 6;
    knows.counted_round = 5;
    knows.counted[0] = 0xaa;
    knows.counted[1] = 1;
    assert_int_equal(choose(waits, knows), 0);
    waits.frame[1] = 2;
    assert_int_equal(choose(waits, knows), 1);
}

static void without_a_member_of_the_counted_lineage_the_furthest_is_taken(void **state)
{
    struct cn_state_tag a = {AT(CN_PHASE_TRAIN, 3)}, b = {AT(CN_PHASE_TRAIN, 4)};

    (void)state;
    assert_int_equal(choose(a, b), 1);
    b.counted_round = 3; // it was away while the round was decided
    b.counted_own = true;
    assert_int_equal(choose(a, b), 1);
    a.counted_round = b.counted_round = 0;
    a.counted_own = b.counted_own = false;
    assert_int_equal(choose(a, b), 1);
}

static void a_board_of_an_older_run_has_no_say(void **state)
{
    struct cn_state_tag old = {AT(CN_PHASE_TRAIN, 90), OWN}, fresh = {.lineage = 1, .run = 8};

    (void)state;
    old.counted_round = 90;
    assert_int_equal(choose(old, fresh), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_one_lineage_the_furthest_is_taken),
        cmocka_unit_test(the_counted_lineage_is_taken_though_the_other_is_further),
        cmocka_unit_test(an_outbox_that_counts_is_taken_though_its_members_do_not_know_yet),
        cmocka_unit_test(without_a_member_of_the_counted_lineage_the_furthest_is_taken),
        cmocka_unit_test(a_board_of_an_older_run_has_no_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
