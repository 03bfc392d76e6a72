// The aggregator's state machine with made-up boards, a flaky store and a fake clock.
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/merge/merge.h"
#include "aggregator/store/spool_name.h"
#include "tests/unit/aggregator_world.h"

static const char *const boards[] = {"a", "b"};

static int open_world(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    world_init(world);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(world_enroll(world, boards[i], boards[i], 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    *state = world;
    return 0;
}

// Lets boards and aggregator work until the run is over. restart: the aggregator is killed each
// time something fails. Returns the digest of the last version.
static void finish_run(struct aggregator_world *world, bool restart, uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_round_info info = {0};
    for (int i = 0; i < 500 && info.state != CN_ROUND_ENDED; i++) {
        world_keep_alive(world);
        unsigned before = world->flaky.fail_at;
        bool fine = world_tick(world, 500) == CN_OK;
        for (size_t board = 0; board < 2; board++)
            world_take_part(world, boards[board], boards[board]);
        bool failed = before && world->flaky.operations >= before;
        if (failed && world->flaky.lasting)
            cn_flaky_store_fail(&world->flaky, 0, false, CN_OK);
        if (!fine || (failed && restart)) {
            cn_flaky_store_fail(&world->flaky, 0, false, CN_OK);
            world_stop(world);
            world_keep_alive(world);
        }
        world_get_round(world, "a", &info);
    }
    assert_int_equal(info.state, CN_ROUND_ENDED);
    assert_int_equal(info.version, world->job.rounds);
    memcpy(digest, info.version_digest, CN_DIGEST_SIZE);
}

static void a_run_goes_through_all_rounds_and_ends(void **state)
{
    struct aggregator_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_run_state end;
    finish_run(world, false, digest);
    cn_run_get_state(world->run, world_now_ms, &end);
    assert_int_equal(end.phase, CN_RUN_ENDED);
    assert_string_equal(end.end_reason, "all rounds are done");
    assert_true(end.progress.newest_score.known);
    assert_true(world->changes > 3);
}

static void an_update_that_is_cut_twice_counts_as_one(void **state)
{
    static const char *const groups[] = {"a", "b", "c"};
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_run_state end;
    world_stop(world);
    assert_int_equal(world_enroll(world, "c", "c", 0), CN_OK);
    world->job.quorum = 3;
    assert_int_equal(world_start(world), CN_OK);
    for (int i = 0; i < 100 && info.version < 1; i++) {
        assert_int_equal(world_tick(world, 50), CN_OK);
        for (int group = 0; group < 3; group++) {
            world->weight = group == 2 ? 1000 : 100;
            world->amount = group == 2 ? 1 : 0.1f;
            world_take_part(world, groups[group], groups[group]);
        }
        assert_true(world_get_round(world, "a", &info));
    }
    cn_run_get_state(world->run, world_now_ms, &end);
    assert_int_equal(end.cuts.round, 1);
    assert_string_equal(end.cuts.group, "c");
    assert_int_equal(end.cuts.update_count, 1);
}

static void a_restarted_aggregator_goes_on_in_the_same_round(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info before = {0}, after = {0};
    world_get_round(world, "a", &before);
    world_get_round(world, "b", &before);
    assert_int_equal(world_tick(world, 50), CN_OK);
    assert_true(world_take_part(world, "a", "a"));
    assert_true(world_get_round(world, "a", &before));
    world_stop(world);
    assert_int_equal(world_start(world), CN_OK);
    assert_true(world_get_round(world, "a", &after));
    assert_int_equal(after.state, CN_ROUND_OPEN);
    assert_int_equal(after.round, before.round);
    assert_int_equal(after.decided_round, after.round);
    assert_memory_equal(after.decided_digest, before.decided_digest, CN_DIGEST_SIZE);
}

// A run from the start, with the given failure at operation number. Returns false when the run was
// over before that many operations.
static bool run_with_failure(const struct cn_server *server, unsigned number, bool lasting,
                             bool restart, cn_err failure, uint8_t digest[CN_DIGEST_SIZE])
{
    struct aggregator_world world;
    world_init(&world);
    world.job.server = *server;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(world_enroll(&world, boards[i], boards[i], 0), CN_OK);
    cn_flaky_store_fail(&world.flaky, number, lasting, failure);
    world_keep_alive(&world);
    finish_run(&world, restart, digest);
    bool reached = world.flaky.operations >= number;
    world_deinit(&world);
    return reached;
}

static void the_model_is_the_same_whatever_fails(void **state)
{
    uint8_t expected[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    struct aggregator_world *world = *state;
    finish_run(world, false, expected);
    unsigned total = world->flaky.operations;
    for (unsigned number = 1; number <= total; number++) {
        bool lasting = number % 2, restart = number % 3 != 0;
        run_with_failure(&world->job.server, number, lasting, restart,
                         number % 5 ? CN_EIO : CN_ENOSPC, digest);
        assert_memory_equal(digest, expected, CN_DIGEST_SIZE);
    }
}

// Its rows are a file of each version; a version made from other rows has another digest.
static void the_state_of_the_server_is_the_same_whatever_fails(void **state)
{
    uint8_t plain[CN_DIGEST_SIZE], expected[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    const struct cn_server none = {0};
    const struct cn_server adam = {
        .optimizer = CN_SERVER_FEDADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3};
    unsigned number = 1;
    (void)state;
    run_with_failure(&none, UINT_MAX, false, false, CN_EIO, plain);
    run_with_failure(&adam, UINT_MAX, false, false, CN_EIO, expected);
    assert_memory_not_equal(plain, expected, CN_DIGEST_SIZE);
    for (bool reached = true; reached; number++) {
        reached = run_with_failure(&adam, number, number % 2, number % 3 != 0, CN_EIO, digest);
        assert_memory_equal(digest, expected, CN_DIGEST_SIZE);
    }
    assert_true(number > 20);
}

static void a_damaged_state_of_the_server_is_refused(void **state)
{
    struct aggregator_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE], *rows;
    size_t size;
    struct cn_store *store = &world->flaky.store;
    struct cn_model model;
    world_stop(world);
    world_deinit(world);
    world_init(world);
    world->job.server = (struct cn_server){
        .optimizer = CN_SERVER_FEDYOGI, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(world_enroll(world, boards[i], boards[i], 0), CN_OK);
    world_keep_alive(world);
    finish_run(world, false, digest);
    assert_int_equal(store->ops->load(store, "version-3.state", 1 << 20, &rows, &size), CN_OK);
    assert_int_equal(size, 2 * world->layout.total * sizeof(float));
    rows[size / 2] ^= 1;
    assert_int_equal(cn_store_replace(store, "version-3.state", rows, size), CN_OK);
    free(rows);
    assert_int_equal(cn_model_load(store, world->ledger, &world->layout, 2, 3, &model), CN_EDIGEST);
    assert_int_equal(cn_model_load(store, world->ledger, &world->layout, 2, 2, &model), CN_OK);
    cn_model_deinit(&model);
    world_stop(world);
    assert_int_equal(world_start(world), CN_EDIGEST);
}

static void a_merge_can_be_repeated_to_the_bit(void **state)
{
    struct aggregator_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];
    finish_run(world, false, digest);
    const struct cn_merge_config config = {
        .store = &world->flaky.store,
        .ledger = world->ledger,
        .layout = &world->layout,
        .job = &world->job,
        .graph = cn_model_store_graph_digest(world->models),
    };
    struct cn_model parent = {0}, next = {0};
    assert_int_equal(
        cn_model_load(&world->flaky.store, world->ledger, &world->layout, 0, 2, &parent), CN_OK);
    assert_int_equal(cn_merge_round(&config, &parent, &next), CN_OK);
    assert_memory_equal(next.digest, digest, CN_DIGEST_SIZE);
    cn_model_deinit(&parent);
    cn_model_deinit(&next);
}

static void a_merge_without_one_of_its_updates_makes_no_version(void **state)
{
    struct aggregator_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];
    finish_run(world, false, digest);
    const struct cn_merge_config config = {
        .store = &world->flaky.store,
        .ledger = world->ledger,
        .layout = &world->layout,
        .job = &world->job,
        .graph = cn_model_store_graph_digest(world->models),
    };
    struct cn_model parent, next;
    assert_int_equal(
        cn_model_load(&world->flaky.store, world->ledger, &world->layout, 0, 2, &parent), CN_OK);
    for (size_t i = 0; i < 2; i++) { // the last one in the walk, then both
        char name[CN_SPOOL_NAME_SIZE];
        cn_spool_name(3, boards[1 - i], name);
        assert_int_equal(world->flaky.store.ops->remove(&world->flaky.store, name), CN_OK);
        assert_int_equal(cn_merge_round(&config, &parent, &next), CN_ENOTFOUND);
    }
    cn_model_deinit(&parent);
}

static void a_deadline_without_a_quorum_extends_the_round(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    world_get_round(world, "a", &info);
    world_get_round(world, "b", &info);
    assert_int_equal(world_tick(world, 50), CN_OK);
    assert_true(world_take_part(world, "a", "a"));
    assert_int_equal(world_tick(world, world->job.deadline_ms + 1), CN_OK);
    assert_true(world_get_round(world, "b", &info));
    assert_int_equal(info.state, CN_ROUND_OPEN);
    assert_int_equal(info.remaining_ms, world->job.deadline_ms);
    assert_true(world_take_part(world, "b", "b"));
    assert_int_equal(world_tick(world, 50), CN_OK);
    assert_true(world_get_round(world, "b", &info));
    assert_int_equal(info.state, CN_ROUND_CLOSING);
}

static void a_group_that_joins_replaces_one_that_is_silent(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    world_get_round(world, "a", &info);
    world_get_round(world, "b", &info);
    assert_int_equal(world_tick(world, 50), CN_OK);
    assert_int_equal(world_enroll(world, "c", "c", 0), CN_OK);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_true(world_take_part(world, "a", "a"));
    assert_true(world_get_round(world, "c", &info));
    assert_false(info.invited);
    assert_int_equal(world_tick(world, world->job.deadline_ms + 1), CN_OK);
    assert_true(world_take_part(world, "c", "c"));
}

static void the_target_ends_the_run_before_the_next_round(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_run_state end;
    world_stop(world);
    world->measured = true;
    world->job.rounds = 50;
    world->job.target_accuracy = 0.2; // version 2
    assert_int_equal(world_start(world), CN_OK);
    for (int i = 0; i < 100 && info.state != CN_ROUND_ENDED; i++) {
        assert_int_equal(world_tick(world, 50), CN_OK);
        for (size_t board = 0; board < 2; board++)
            world_take_part(world, boards[board], boards[board]);
        world_get_round(world, "a", &info);
    }
    assert_int_equal(info.state, CN_ROUND_ENDED);
    assert_int_equal(info.version, 2);
    cn_run_get_state(world->run, world_now_ms, &end);
    assert_string_equal(end.end_reason, "the target accuracy is reached");
}

// Runs until the end with this metric and target. Returns the newest version.
static uint32_t run_to_target(struct aggregator_world *world, enum cn_metric metric, double target,
                              const char **reason)
{
    struct cn_round_info info = {0};
    struct cn_run_state end;
    world_stop(world);
    world->measured = true;
    world->job.rounds = 50;
    world->job.metric = metric;
    world->job.target = target;
    assert_int_equal(world_start(world), CN_OK);
    for (int i = 0; i < 100 && info.state != CN_ROUND_ENDED; i++) {
        assert_int_equal(world_tick(world, 50), CN_OK);
        for (size_t board = 0; board < 2; board++)
            world_take_part(world, boards[board], boards[board]);
        world_get_round(world, "a", &info);
    }
    assert_int_equal(info.state, CN_ROUND_ENDED);
    cn_run_get_state(world->run, world_now_ms, &end);
    *reason = end.end_reason;
    return info.version;
}

static void a_target_of_a_metric_that_rises_ends_the_run(void **state)
{
    const char *reason;
    assert_int_equal(run_to_target(*state, CN_METRIC_F1, 0.15, &reason), 3);
    assert_string_equal(reason, "stop.target is reached");
}

// What was the best by one metric may be a bad version by another.
static void another_metric_compares_all_versions_again(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_run_progress progress = {0};
    const char *reason;
    assert_int_equal(run_to_target(world, CN_METRIC_F1, 0.2, &reason), 4);
    assert_int_equal(cn_score_progress(world->ledger, &world->job, 0, &progress), CN_OK);
    assert_int_equal(progress.best, 4);
    world->job.metric = CN_METRIC_LOSS; // which is the same for all: the first is the best
    assert_int_equal(cn_score_progress(world->ledger, &world->job, 3, &progress), CN_OK);
    assert_in_range(progress.best, 0, 1);
    world->job.metric = CN_METRIC_TOP5; // which nobody measured
    assert_int_equal(cn_score_progress(world->ledger, &world->job, 3, &progress), CN_OK);
    assert_false(progress.best_score.known);
    assert_int_equal(cn_score_age(&progress), 0);
}

static void a_target_of_a_metric_that_falls_ends_the_run(void **state)
{
    const char *reason;
    assert_int_equal(run_to_target(*state, CN_METRIC_MAE, 1, &reason), 4);
    assert_string_equal(reason, "stop.target is reached");
}

static void a_version_that_is_far_worse_than_its_parent_is_named(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_run_state seen = {0};
    world_stop(world);
    world->measured = true;
    world->job.rounds = 50;
    world->job.patience = 40; // each round waits for the measurement
    world->worse = 2;
    assert_int_equal(world_start(world), CN_OK);
    for (int i = 0; i < 100 && !seen.warning[0]; i++) {
        assert_int_equal(world_tick(world, 50), CN_OK);
        for (size_t board = 0; board < 2; board++)
            world_take_part(world, boards[board], boards[board]);
        cn_run_get_state(world->run, world_now_ms, &seen);
    }
    assert_string_equal(seen.warning, "version 2: its loss on the central set is 5, that of "
                                      "version 1 was 0.5");
    for (int i = 0; i < 100 && seen.warning[0]; i++) {
        assert_int_equal(world_tick(world, 50), CN_OK);
        for (size_t board = 0; board < 2; board++)
            world_take_part(world, boards[board], boards[board]);
        cn_run_get_state(world->run, world_now_ms, &seen);
    }
    assert_string_equal(seen.warning, ""); // version 3
}

static void a_larger_quorum_in_an_open_round_fits_the_weights(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_ledger_contribution accepted;
    world_stop(world);
    world->job.quorum = 1;
    world->job.over_select = 2;
    world->job.trust_groups = true;
    world->weight = 1ull << 31;
    assert_int_equal(world_start(world), CN_OK);
    world_get_round(world, "a", &info);
    world_get_round(world, "b", &info);
    assert_int_equal(world_tick(world, 50), CN_OK);
    assert_true(world_take_part(world, "a", "a"));
    assert_int_equal(cn_ledger_find_contribution(world->ledger, 1, "a", &accepted), CN_OK);
    assert_int_equal(accepted.weight, 1ull << 31);
    world_stop(world);
    world->job.quorum = 2;
    assert_int_equal(world_start(world), CN_OK);
    world_get_round(world, "b", &info);
    assert_int_equal(world_tick(world, 50), CN_OK);
    assert_true(world_take_part(world, "b", "b"));
    for (int i = 0; i < 10; i++)
        assert_int_equal(world_tick(world, 50), CN_OK);
    world_get_round(world, "a", &info);
    assert_int_equal(info.version, 1);
}

static void leftovers_of_a_crash_are_removed_at_start(void **state)
{
    struct aggregator_world *world = *state;
    size_t size;
    world_stop(world);
    assert_int_equal(cn_store_replace(&world->flaky.store, "version-9.full", "x", 1), CN_OK);
    assert_int_equal(cn_store_replace(&world->flaky.store, "round-1-a.update", "x", 1), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    assert_null(cn_flaky_store_bytes(&world->flaky, "version-9.full", &size));
    assert_null(cn_flaky_store_bytes(&world->flaky, "round-1-a.update", &size));
    assert_non_null(cn_flaky_store_bytes(&world->flaky, "version-0.full", &size));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_goes_through_all_rounds_and_ends, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(an_update_that_is_cut_twice_counts_as_one, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_restarted_aggregator_goes_on_in_the_same_round,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(the_model_is_the_same_whatever_fails, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(the_state_of_the_server_is_the_same_whatever_fails,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_damaged_state_of_the_server_is_refused, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_merge_can_be_repeated_to_the_bit, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_merge_without_one_of_its_updates_makes_no_version,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_deadline_without_a_quorum_extends_the_round, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_group_that_joins_replaces_one_that_is_silent, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_target_of_a_metric_that_rises_ends_the_run, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_target_of_a_metric_that_falls_ends_the_run, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(another_metric_compares_all_versions_again, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(the_target_ends_the_run_before_the_next_round, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_version_that_is_far_worse_than_its_parent_is_named,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_larger_quorum_in_an_open_round_fits_the_weights,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(leftovers_of_a_crash_are_removed_at_start, open_world,
                                        world_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
