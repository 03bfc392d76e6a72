// Which state directories are those of submitted jobs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/daemon/job_place.h"
#include "aggregator/ledger/jobs.h"
#include "tests/unit/aggregator_world.h"

struct fixture {
    struct aggregator_world world;
    char jobs[128], job[160]; // folders
};

static int make_folders(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    world_init(&f->world);
    snprintf(f->jobs, sizeof(f->jobs), "%s/" CN_JOBS_FOLDER, f->world.directory);
    snprintf(f->job, sizeof(f->job), "%s/next", f->jobs);
    *state = f;
    return mkdir(f->jobs, 0700) || mkdir(f->job, 0700);
}

static int remove_folders(void **state)
{
    struct fixture *f = *state;
    rmdir(f->job);
    rmdir(f->jobs);
    world_deinit(&f->world);
    free(f);
    return 0;
}

static void submit(struct fixture *f, const char *name)
{
    struct cn_queued_job row = {.priority = CN_JOB_PRIORITY, .turn = 1};
    snprintf(row.name, sizeof(row.name), "%s", name);
    assert_int_equal(cn_ledger_open(f->world.directory, &f->world.ledger), CN_OK);
    assert_int_equal(cn_jobs_add(f->world.ledger, &row), CN_OK);
}

static void a_job_of_the_gateway_is_found(void **state)
{
    struct fixture *f = *state;
    struct cn_job_place place;
    char dotted[sizeof(f->job) + 2];
    submit(f, "next");
    snprintf(dotted, sizeof(dotted), "%s/.", f->job); // as its profile has it
    assert_true(cn_job_place_find(dotted, &place));
    assert_string_equal(place.gateway, f->world.directory);
    assert_string_equal(place.job, "next");
    assert_false(cn_job_place_find(f->world.directory, &place));
}

static void a_gateway_whose_own_state_lies_in_a_folder_jobs_is_no_job(void **state)
{
    struct fixture *f = *state;
    struct cn_job_place place;
    assert_false(cn_job_place_find(f->job, &place)); // the folder above has no ledger
    submit(f, "other");
    assert_false(cn_job_place_find(f->job, &place)); // and now one without this job
}

static void a_ledger_that_cannot_be_read_leaves_it_to_the_path(void **state)
{
    struct fixture *f = *state;
    struct cn_job_place place;
    char path[sizeof(f->job)];
    submit(f, "other");
    cn_ledger_close(f->world.ledger);
    f->world.ledger = NULL;
    snprintf(path, sizeof(path), "%s/" CN_LEDGER_FILE, f->world.directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("no ledger", file);
    fclose(file);
    assert_true(cn_job_place_find(f->job, &place));
    assert_string_equal(place.job, "next");
    assert_false(cn_job_place_find(f->world.directory, &place));
}

#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, make_folders, remove_folders)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(a_job_of_the_gateway_is_found),
        FOLDER_TEST(a_gateway_whose_own_state_lies_in_a_folder_jobs_is_no_job),
        FOLDER_TEST(a_ledger_that_cannot_be_read_leaves_it_to_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
