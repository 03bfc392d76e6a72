// Which job each group serves, when a gateway has several.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "aggregator/jobs/job_schedule.h"

#define JOBS 3
#define GROUPS 8

struct schedule_input {
    struct cn_schedule_job jobs[JOBS];
    struct cn_schedule_group groups[GROUPS];
};

// Three jobs of one priority that may use all of eight groups, which are live and serve the first.
static struct schedule_input make_input(void)
{
    struct schedule_input input = {0};
    for (int j = 0; j < JOBS; j++)
        input.jobs[j] =
            (struct cn_schedule_job){.runs = true, .priority = 5, .needs = 3, .wanted = UINT32_MAX};
    for (int g = 0; g < GROUPS; g++)
        input.groups[g] = (struct cn_schedule_group){.live = true, .heard = true, .fits = 7};
    return input;
}

// Decides, and lets the groups that are free change. Returns how many serve a job then.
static void decide(struct schedule_input *input)
{
    assert_int_equal(CN_OK, cn_schedule(input->jobs, JOBS, input->groups, GROUPS));
    for (int g = 0; g < GROUPS; g++)
        if (!input->groups[g].busy && input->groups[g].claimed != CN_SCHEDULE_NONE)
            input->groups[g].holder = input->groups[g].claimed;
}

static int held(const struct schedule_input *input, uint32_t job)
{
    int count = 0;
    for (int g = 0; g < GROUPS; g++)
        count += input->groups[g].holder == job;
    return count;
}

static void the_first_of_equal_jobs_has_all_that_it_can_use(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    decide(&input);
    assert_int_equal(8, held(&input, 0));
    assert_int_equal(CN_WAIT_NONE, input.jobs[0].wait);
    assert_int_equal(CN_WAIT_OTHERS, input.jobs[1].wait);
}

static void what_a_job_does_not_want_serves_the_next(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    input.jobs[0].wanted = 3;
    decide(&input);
    assert_int_equal(3, held(&input, 0));
    assert_int_equal(5, held(&input, 1));
    assert_int_equal(CN_WAIT_OTHERS, input.jobs[2].wait);
}

// A gateway that has just begun has not heard all groups yet.
static void of_groups_alike_those_that_were_heard_come_first(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    for (int g = 0; g < GROUPS; g++)
        input.groups[g].holder = g < 5 ? 2 : 0;
    input.groups[0].heard = input.groups[7].heard = false;
    input.jobs[2].runs = false;
    input.jobs[0].wanted = 6;
    decide(&input);
    assert_int_equal(2,
                     input.groups[0].holder); // the only one that was not heard and served another
    assert_int_equal(0, input.groups[7].holder); // its own stays
}

static void the_rank_decides(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    input.jobs[2].share = -1;
    decide(&input);
    assert_int_equal(8, held(&input, 2)); // the smaller share
    input.jobs[1].in_turn = true;
    decide(&input);
    assert_int_equal(8, held(&input, 1)); // a turn that is under way
    input.jobs[0].priority = 6;
    decide(&input);
    assert_int_equal(8, held(&input, 0)); // the priority
    input.jobs[2].ahead = true;
    decide(&input);
    assert_int_equal(8, held(&input, 2)); // a person
    input.jobs[2].runs = false;
    decide(&input);
    assert_int_equal(8, held(&input, 0));
    assert_int_equal(CN_WAIT_IDLE, input.jobs[2].wait);
}

static void a_round_is_never_broken_up(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    input.jobs[1].priority = 6;
    for (int g = 0; g < 6; g++)
        input.groups[g].busy = true;
    decide(&input);
    assert_int_equal(6, held(&input, 0));
    assert_int_equal(2, held(&input, 1));
    assert_int_equal(CN_WAIT_FREEING,
                     input.jobs[1].wait); // it keeps the two, and gets the next ones
    input.groups[0].busy = false;
    decide(&input);
    assert_int_equal(3, held(&input, 1));
    assert_int_equal(CN_WAIT_NONE, input.jobs[1].wait);
}

static void two_jobs_do_not_each_keep_half_of_what_both_need(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    input.jobs[0].needs = input.jobs[1].needs = 8;
    input.jobs[0].share = 1;
    for (int g = 0; g < 4; g++)
        input.groups[g].holder = 1;
    decide(&input);
    assert_int_equal(8, held(&input, 1));
}

static void a_job_that_cannot_have_what_it_needs_keeps_nothing_from_others(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    input.jobs[0].needs = 9;
    decide(&input);
    assert_int_equal(CN_WAIT_FEW, input.jobs[0].wait);
    assert_int_equal(8, input.jobs[0].fit);
    assert_int_equal(8, held(&input, 1));
    input = make_input();
    input.jobs[0].needs = 6;
    for (int g = 0; g < 3; g++)
        input.groups[g].live = false;
    decide(&input);
    assert_int_equal(CN_WAIT_SILENT, input.jobs[0].wait);
    assert_int_equal(5, input.jobs[0].live);
    assert_int_equal(5, held(&input, 1)); // the silent ones stay where they were
}

static void a_group_serves_only_what_it_fits(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    for (int g = 0; g < 5; g++)
        input.groups[g].fits = 1 << 1;
    decide(&input);
    assert_int_equal(3, input.jobs[0].fit);
    assert_int_equal(CN_WAIT_OTHERS, input.jobs[2].wait);
    for (int g = 0; g < 5; g++)
        assert_int_equal(1, input.groups[g].holder);
    for (int g = 5; g < 8; g++)
        assert_int_equal(0, input.groups[g].holder);
}

static void groups_stay_with_their_job_without_need(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    input.jobs[0].wanted = input.jobs[1].wanted = 4;
    for (int g = 0; g < 4; g++)
        input.groups[g].holder = 1;
    for (int i = 0; i < 3; i++) {
        decide(&input);
        for (int g = 0; g < GROUPS; g++)
            assert_int_equal(g < 4 ? 1 : 0, (int)input.groups[g].holder);
    }
}

static void too_many_jobs_are_refused(void **state)
{
    (void)state;
    struct schedule_input input = make_input();
    assert_int_equal(CN_ERANGE,
                     cn_schedule(input.jobs, CN_SCHEDULE_JOBS + 1, input.groups, GROUPS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_equal_jobs_has_all_that_it_can_use),
        cmocka_unit_test(what_a_job_does_not_want_serves_the_next),
        cmocka_unit_test(of_groups_alike_those_that_were_heard_come_first),
        cmocka_unit_test(the_rank_decides),
        cmocka_unit_test(a_round_is_never_broken_up),
        cmocka_unit_test(two_jobs_do_not_each_keep_half_of_what_both_need),
        cmocka_unit_test(a_job_that_cannot_have_what_it_needs_keeps_nothing_from_others),
        cmocka_unit_test(a_group_serves_only_what_it_fits),
        cmocka_unit_test(groups_stay_with_their_job_without_need),
        cmocka_unit_test(too_many_jobs_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
