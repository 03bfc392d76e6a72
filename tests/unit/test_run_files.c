// The files of several runs in one board's store.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/checkpoint/run_store.h"
#include "runtime/round/upkeep/run_files.h"
#include "tests/support/flaky_store.h"

static int open_store(void **state)
{
    static struct cn_flaky_store flaky;

    cn_flaky_store_init(&flaky);
    *state = &flaky;
    return 0;
}

static int close_store(void **state)
{
    cn_flaky_store_deinit(*state);
    return 0;
}

// Serves a run as a node does: notes it, and stores a state of a round.
static cn_err serve(struct cn_flaky_store *flaky, uint64_t run, uint32_t round)
{
    const struct cn_run_files_config config = {.store = &flaky->store, .disk = "/"};
    struct cn_checkpoint state = {.run = run, .round = round};
    struct cn_store *files = NULL;
    cn_err err;

    cn_run_files_use(&config, run);
    err = cn_run_store_open(&flaky->store, run, &files);
    if (!err)
        err = cn_checkpoint_save(files, &state);
    if (!err)
        err = cn_store_replace(files, "graph.blob", &run, sizeof(run));
    cn_checkpoint_deinit(&state);
    if (files)
        files->ops->close(files);
    return err;
}

// Returns the round of a run's state; 0: it has none.
static uint32_t round_of(struct cn_flaky_store *flaky, uint64_t run)
{
    struct cn_checkpoint state = {0};
    struct cn_store *files;
    struct cn_diag diag;
    uint32_t round;

    cn_diag_init(&diag);
    assert_int_equal(cn_run_store_open(&flaky->store, run, &files), CN_OK);
    if (cn_checkpoint_load(files, 0, 0, &diag, &state) || state.run != run)
        state.round = 0;
    round = state.round;
    cn_checkpoint_deinit(&state);
    files->ops->close(files);
    return round;
}

static bool has_file(struct cn_flaky_store *flaky, const char *name)
{
    size_t size;

    return cn_flaky_store_bytes(flaky, name, &size) != NULL;
}

static void the_first_run_has_the_names_of_before(void **state)
{
    struct cn_flaky_store *flaky = *state;

    assert_int_equal(serve(flaky, 0xa1, 3), CN_OK);
    assert_true(has_file(flaky, "graph.blob"));
    assert_true(has_file(flaky, "checkpoint.b"));
    assert_int_equal(flaky->file_count, 2); // no list of runs while there is one
}

static void each_run_keeps_its_state(void **state)
{
    struct cn_flaky_store *flaky = *state;

    for (uint32_t round = 1; round <= 3; round++)
        for (uint64_t run = 1; run <= 3; run++)
            assert_int_equal(serve(flaky, run, 10 * (uint32_t)run + round), CN_OK);
    for (uint64_t run = 1; run <= 3; run++)
        assert_int_equal(round_of(flaky, run), 10 * (uint32_t)run + 3);
    assert_true(has_file(flaky, "run-0000000000000002.graph.blob"));
    assert_false(has_file(flaky, "run-0000000000000001.graph.blob"));
}

static cn_err add_name(void *context, const char *name)
{
    strcat(strcat(context, name), " ");
    return CN_OK;
}

static void a_run_sees_its_own_files(void **state)
{
    struct cn_flaky_store *flaky = *state;
    struct cn_store *files;
    char names[500] = "";

    assert_int_equal(serve(flaky, 1, 1), CN_OK);
    assert_int_equal(serve(flaky, 2, 1), CN_OK);
    assert_int_equal(cn_run_store_open(&flaky->store, 2, &files), CN_OK);
    assert_int_equal(files->ops->list(files, add_name, names), CN_OK);
    assert_string_equal(names, "checkpoint.b graph.blob ");
    assert_int_equal(files->ops->remove(files, "graph.blob"), CN_OK);
    files->ops->close(files);
    assert_true(has_file(flaky, "graph.blob"));
    assert_false(has_file(flaky, "run-0000000000000002.graph.blob"));
}

static void a_damaged_slot_does_not_cost_the_run_its_names(void **state)
{
    struct cn_flaky_store *flaky = *state;
    size_t size;

    for (uint32_t round = 1; round <= 2; round++)
        assert_int_equal(serve(flaky, 1, round), CN_OK);
    cn_flaky_store_bytes(flaky, "checkpoint.a", &size)[24] ^= 1; // the newest: its run
    assert_int_equal(round_of(flaky, 1), 1);
}

static void the_run_used_longest_ago_goes_first(void **state)
{
    struct cn_flaky_store *flaky = *state;

    for (uint64_t run = 1; run <= CN_RUN_FILES_MOST; run++)
        assert_int_equal(serve(flaky, run, 1), CN_OK);
    assert_int_equal(serve(flaky, 1, 2), CN_OK); // used again
    assert_int_equal(serve(flaky, 100, 1), CN_OK);
    assert_int_equal(round_of(flaky, 1), 2);
    assert_int_equal(round_of(flaky, 2), 0);
    assert_int_equal(round_of(flaky, 3), 1);
    for (uint64_t run = 101; run <= 100 + CN_RUN_FILES_MOST; run++)
        assert_int_equal(serve(flaky, run, 1), CN_OK);
    assert_int_equal(round_of(flaky, 1), 0); // its files without a prefix went, too
    for (uint64_t run = 101; run <= 100 + CN_RUN_FILES_MOST; run++)
        assert_int_equal(round_of(flaky, run), 1);
}

static void without_the_list_the_files_tell_of_runs(void **state)
{
    struct cn_flaky_store *flaky = *state;
    size_t size;

    for (uint64_t run = 1; run <= CN_RUN_FILES_MOST; run++)
        assert_int_equal(serve(flaky, run, 1), CN_OK);
    cn_flaky_store_bytes(flaky, "runs", &size)[9] ^= 1;
    assert_int_equal(serve(flaky, 50, 1), CN_OK);
    assert_int_equal(round_of(flaky, 50), 1);
    uint32_t kept = 0;
    for (uint64_t run = 1; run <= CN_RUN_FILES_MOST; run++)
        kept += round_of(flaky, run) != 0;
    assert_int_equal(kept, CN_RUN_FILES_MOST - 1);
}

static void a_short_disk_keeps_the_present_run_only(void **state)
{
    struct cn_flaky_store *flaky = *state;
    const struct cn_run_files_config config = {
        .store = &flaky->store, .disk = "/", .reserve = UINT64_MAX};

    for (uint64_t run = 1; run <= 3; run++)
        assert_int_equal(serve(flaky, run, 1), CN_OK);
    cn_run_files_use(&config, 2);
    assert_int_equal(round_of(flaky, 1), 0);
    assert_int_equal(round_of(flaky, 2), 1);
    assert_int_equal(round_of(flaky, 3), 0);
}

// Whatever operation fails or is the last one of a killed program, the states that are kept are
// whole, and the next start serves its run.
static void a_failure_at_any_operation_loses_no_state(void **state)
{
    struct cn_flaky_store *flaky = *state;
    cn_err err = CN_EIO;

    for (unsigned number = 1; err; number++) {
        cn_flaky_store_deinit(flaky);
        cn_flaky_store_init(flaky);
        for (uint64_t run = 1; run <= CN_RUN_FILES_MOST; run++)
            assert_int_equal(serve(flaky, run, 7), CN_OK);
        cn_flaky_store_fail(flaky, number, true, CN_EIO);
        err = serve(flaky, 60, 8);
        cn_flaky_store_fail(flaky, 0, false, CN_OK);
        for (uint64_t run = 2; run <= CN_RUN_FILES_MOST; run++)
            assert_int_equal(round_of(flaky, run), 7);
        assert_int_equal(serve(flaky, 60, 9), CN_OK);
        assert_int_equal(round_of(flaky, 60), 9);
    }
}

// An earlier release left the state of one run in one slot and that of the next in the other.
static void of_two_runs_in_the_plain_slots_the_newer_one_has_them(void **state)
{
    struct cn_flaky_store *flaky = *state;
    struct cn_checkpoint older = {.run = 1, .round = 5}, newer = {.run = 2, .round = 6};

    assert_int_equal(cn_checkpoint_save(&flaky->store, &older), CN_OK);
    assert_int_equal(cn_checkpoint_save(&flaky->store, &newer), CN_OK);
    assert_int_equal(serve(flaky, 1, 7), CN_OK);
    assert_int_equal(serve(flaky, 1, 8), CN_OK);
    assert_int_equal(round_of(flaky, 1), 8);
    assert_int_equal(round_of(flaky, 2), 6);
}

// A disk that fails for a moment must not make a state look missing: it would be overwritten.
static void a_slot_that_cannot_be_read_is_an_error(void **state)
{
    struct cn_flaky_store *flaky = *state;
    struct cn_store *files;

    assert_int_equal(serve(flaky, 1, 5), CN_OK);
    for (unsigned number = 1; number <= 4; number++) {
        cn_flaky_store_fail(flaky, number, true, CN_EIO);
        assert_int_equal(cn_run_store_open(&flaky->store, 2, &files), CN_EIO);
    }
    cn_flaky_store_fail(flaky, 1, false, CN_EIO); // once
    assert_int_equal(cn_run_store_open(&flaky->store, 2, &files), CN_OK);
    files->ops->close(files);
    cn_flaky_store_fail(flaky, 0, false, CN_OK);
    assert_int_equal(round_of(flaky, 1), 5);
}

// Killed while a run is removed, a board has its newest state or none.
static void a_removal_that_ends_half_way_brings_no_older_state(void **state)
{
    struct cn_flaky_store *flaky = *state;
    cn_err err = CN_EIO;

    for (unsigned number = 1; err; number++) {
        cn_flaky_store_deinit(flaky);
        cn_flaky_store_init(flaky);
        for (uint32_t round = 1; round <= 6; round++)
            for (uint64_t run = 1; run <= 2; run++)
                assert_int_equal(serve(flaky, run, round), CN_OK);
        for (uint64_t run = 1; run <= 2; run++) {
            cn_flaky_store_fail(flaky, number, true, CN_EIO);
            cn_err removed = cn_run_store_remove(&flaky->store, run);
            err = run == 1 || removed ? removed : err;
            cn_flaky_store_fail(flaky, 0, false, CN_OK);
            uint32_t left = round_of(flaky, run);
            assert_true(left == 6 || left == 0);
        }
    }
    assert_int_equal(round_of(flaky, 1) + round_of(flaky, 2), 0);
}

static void names_are_told_apart(void **state)
{
    uint64_t run;

    (void)state;
    assert_true(cn_run_store_name("run-00000000000000ff.checkpoint.a", &run));
    assert_int_equal(run, 0xff);
    assert_false(cn_run_store_name("run-ff.checkpoint.a", &run));
    assert_false(cn_run_store_name("run-00000000000000FF.checkpoint.a", &run));
    assert_false(cn_run_store_name("runs", &run));
    assert_false(cn_run_store_name("checkpoint.a", &run));
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, open_store, close_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(the_first_run_has_the_names_of_before),
        WITH_STORE(each_run_keeps_its_state),
        WITH_STORE(a_run_sees_its_own_files),
        WITH_STORE(a_damaged_slot_does_not_cost_the_run_its_names),
        WITH_STORE(the_run_used_longest_ago_goes_first),
        WITH_STORE(without_the_list_the_files_tell_of_runs),
        WITH_STORE(a_short_disk_keeps_the_present_run_only),
        WITH_STORE(a_failure_at_any_operation_loses_no_state),
        WITH_STORE(of_two_runs_in_the_plain_slots_the_newer_one_has_them),
        WITH_STORE(a_slot_that_cannot_be_read_is_an_error),
        WITH_STORE(a_removal_that_ends_half_way_brings_no_older_state),
        cmocka_unit_test(names_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
