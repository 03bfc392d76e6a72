// The queue of a gateway's jobs in its ledger.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/jobs.h"
#include "aggregator/ledger/ledger_sql.h"
#include "tests/unit/aggregator_world.h"

static int open_world(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    world_init(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    *state = world;
    return 0;
}

static cn_err add(struct aggregator_world *world, const char *name, uint32_t priority)
{
    struct cn_queued_job job = {.priority = priority, .turn = 3, .needs = "cores >= 2"};
    snprintf(job.name, sizeof(job.name), "%s", name);
    return cn_jobs_add(world->ledger, &job);
}

static cn_err describe(void *context, const struct cn_queued_job *job)
{
    char *text = context;
    snprintf(text + strlen(text), 800, "%s %u %u '%s' %s%s %s; ", job->name, job->priority,
             job->turn, job->needs, cn_job_state_name(job->state), job->ahead ? "!" : "",
             job->reason);
    return CN_OK;
}

static void expect_jobs(struct aggregator_world *world, const char *wanted)
{
    char text[2000] = "";
    assert_int_equal(cn_jobs_list(world->ledger, describe, text), CN_OK);
    assert_string_equal(text, wanted);
}

static void jobs_stand_in_the_order_in_which_they_came(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_queued_job job;
    assert_int_equal(add(world, "z", 5), CN_OK);
    assert_int_equal(add(world, "a", 9), CN_OK);
    assert_int_equal(add(world, "a", 1), CN_EEXIST);
    expect_jobs(world, "z 5 3 'cores >= 2' active ; a 9 3 'cores >= 2' active ; ");
    assert_int_equal(cn_jobs_find(world->ledger, "a", &job), CN_OK);
    assert_int_equal(job.priority, 9);
    assert_true(job.submitted_ms > 0);
    assert_int_equal(cn_jobs_find(world->ledger, "b", &job), CN_ENOTFOUND);
}

static void what_is_over_stays_over(void **state)
{
    struct aggregator_world *world = *state;
    assert_int_equal(add(world, "a", 5), CN_OK);
    assert_int_equal(cn_jobs_set_state(world->ledger, "a", CN_JOB_HELD, ""), CN_OK);
    expect_jobs(world, "a 5 3 'cores >= 2' held ; ");
    assert_int_equal(cn_jobs_set_ahead(world->ledger, "a", true), CN_OK);
    assert_int_equal(cn_jobs_set_state(world->ledger, "a", CN_JOB_STOPPED, "why"), CN_OK);
    assert_int_equal(cn_jobs_set_state(world->ledger, "a", CN_JOB_ACTIVE, ""), CN_OK);
    expect_jobs(world, "a 5 3 'cores >= 2' stopped why; ");
}

static void one_job_is_ahead(void **state)
{
    struct aggregator_world *world = *state;
    assert_int_equal(add(world, "a", 5), CN_OK);
    assert_int_equal(add(world, "b", 5), CN_OK);
    assert_int_equal(cn_jobs_set_ahead(world->ledger, "a", true), CN_OK);
    assert_int_equal(cn_jobs_set_ahead(world->ledger, "b", true), CN_OK);
    expect_jobs(world, "a 5 3 'cores >= 2' active ; b 5 3 'cores >= 2' active! ; ");
    assert_int_equal(cn_jobs_set_ahead(world->ledger, "a", false), CN_OK);
    expect_jobs(world, "a 5 3 'cores >= 2' active ; b 5 3 'cores >= 2' active! ; ");
    assert_int_equal(cn_jobs_set_ahead(world->ledger, "b", false), CN_OK);
    expect_jobs(world, "a 5 3 'cores >= 2' active ; b 5 3 'cores >= 2' active ; ");
}

static void the_queue_is_bounded_by_jobs_that_are_not_over(void **state)
{
    struct aggregator_world *world = *state;
    char name[16];
    for (int i = 0; i < CN_JOBS_MOST; i++) {
        snprintf(name, sizeof(name), "job-%d", i);
        assert_int_equal(add(world, name, 5), CN_OK);
    }
    assert_int_equal(add(world, "more", 5), CN_ERANGE);
    assert_int_equal(cn_jobs_set_state(world->ledger, "job-3", CN_JOB_ENDED, "done"), CN_OK);
    assert_int_equal(add(world, "more", 5), CN_OK);
}

static void rows_that_nobody_wrote_are_refused(void **state)
{
    struct aggregator_world *world = *state;
    char text[2000] = "";
    assert_int_equal(add(world, "a", 5), CN_OK);
    assert_int_equal(cn_ledger_sql_run(world->ledger, "UPDATE job SET turn=0"), CN_OK);
    assert_int_equal(cn_jobs_list(world->ledger, describe, text), CN_EFORMAT);
    assert_int_equal(cn_ledger_sql_run(world->ledger, "UPDATE job SET turn=1,state=9"), CN_OK);
    assert_int_equal(cn_jobs_list(world->ledger, describe, text), CN_EFORMAT);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, open_world, world_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(jobs_stand_in_the_order_in_which_they_came),
        WITH_WORLD(what_is_over_stays_over),
        WITH_WORLD(one_job_is_ahead),
        WITH_WORLD(the_queue_is_bounded_by_jobs_that_are_not_over),
        WITH_WORLD(rows_that_nobody_wrote_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
