// What a member does with the sums of a step that it could not end, and which member gives its
// state to the others.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/epoch/recovery.h"

static struct cn_recovery_row at(uint32_t round, enum cn_phase phase, uint32_t step)
{
    return (struct cn_recovery_row){
        .tag = {.lineage = 1, .run = 7, .round = round, .phase = phase, .step = step}};
}

static void a_step_is_completed_exactly_where_another_member_applied_it(void **state)
{
    // This member is at step 9 of round 3 and holds sums of that epoch; the state that counts.
    static const struct {
        uint64_t holds;
        uint32_t round;
        enum cn_phase phase;
        uint32_t step;
        uint64_t applied;
        enum cn_recovery_action action;
    } cases[] = {
        {0, 3, CN_PHASE_TRAIN, 10, 32, CN_RECOVERY_NOTHING},
        {32, 3, CN_PHASE_TRAIN, 10, 32, CN_RECOVERY_ROLL_FORWARD},
        {32, 3, CN_PHASE_TRAIN, 9, 32, CN_RECOVERY_DROP},  // nobody did: it is done again
        {32, 3, CN_PHASE_TRAIN, 10, 48, CN_RECOVERY_DROP}, // others did it again, without this one
        {32, 3, CN_PHASE_TRAIN, 10, 0, CN_RECOVERY_DROP},  // from a disk: nobody knows
        {32, 3, CN_PHASE_TRAIN, 11, 32, CN_RECOVERY_DROP},
        {32, 4, CN_PHASE_TRAIN, 10, 32, CN_RECOVERY_DROP},
        {32, 3, CN_PHASE_SEND, 10, 32, CN_RECOVERY_DROP},
        {32, 4, CN_PHASE_BASE, 10, 32, CN_RECOVERY_DROP},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_recovery_row own = at(3, CN_PHASE_TRAIN, 9);
        struct cn_recovery_row newest = at(cases[i].round, cases[i].phase, cases[i].step);

        own.holds = cases[i].holds;
        newest.applied = cases[i].applied;
        if (cn_recovery_decide(&own, &newest) != cases[i].action)
            fail_msg("case %zu", i);
    }
}

static void a_step_of_another_run_is_dropped(void **state)
{
    struct cn_recovery_row own = at(3, CN_PHASE_TRAIN, 9), newest = at(3, CN_PHASE_TRAIN, 10);

    (void)state;
    own.holds = newest.applied = 32;
    newest.tag.run = 8;
    assert_int_equal(cn_recovery_decide(&own, &newest), CN_RECOVERY_DROP);
    newest.tag.run = 7;
    newest.tag.lineage = 2;
    assert_int_equal(cn_recovery_decide(&own, &newest), CN_RECOVERY_DROP);
}

static void the_least_busy_member_with_the_state_gives_it(void **state)
{
    struct cn_recovery_row rows[4] = {at(3, CN_PHASE_TRAIN, 10), at(3, CN_PHASE_TRAIN, 10),
                                      at(3, CN_PHASE_TRAIN, 9), at(3, CN_PHASE_TRAIN, 10)};

    (void)state;
    assert_int_equal(cn_recovery_source(rows, 4, 0), 3); // not the one that leads
    rows[3].busy_us = 900;
    assert_int_equal(cn_recovery_source(rows, 4, 0), 1);
    rows[0].busy_us = rows[1].busy_us = 2000;
    assert_int_equal(cn_recovery_source(rows, 4, 0), 3);
    rows[3].tag.counted_round = 2; // of another lineage
    assert_int_equal(cn_recovery_source(rows, 4, 0), 1);
    assert_int_equal(cn_recovery_source(rows, 4, 2), 2);
}

static void a_member_that_cannot_give_its_state_leaves_it_to_another(void **state)
{
    struct cn_recovery_row rows[3] = {at(3, CN_PHASE_TRAIN, 10), at(3, CN_PHASE_TRAIN, 9),
                                      at(3, CN_PHASE_TRAIN, 10)};

    (void)state;
    rows[0].busy_us = 900;
    rows[2].unable = true;
    assert_int_equal(cn_recovery_source(rows, 3, 2), 0);
    rows[0].unable = true;
    assert_int_equal(cn_recovery_source(rows, 3, 0), 3); // an older state is none
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_completed_exactly_where_another_member_applied_it),
        cmocka_unit_test(a_step_of_another_run_is_dropped),
        cmocka_unit_test(the_least_busy_member_with_the_state_gives_it),
        cmocka_unit_test(a_member_that_cannot_give_its_state_leaves_it_to_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
