// Rounds with a robust rule: made-up boards of five groups, a flaky store and a fake clock.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/tally.h"
#include "aggregator/merge/merge.h"
#include "tests/unit/aggregator_world.h"

#define BOARDS 5

static const char *const boards[BOARDS] = {"a", "b", "c", "d", "e"};

static void open_world(struct aggregator_world *world, enum cn_robust_rule rule,
                       enum cn_robust_mix mix)
{
    world_init(world);
    for (size_t i = 0; i < BOARDS; i++)
        assert_int_equal(world_enroll(world, boards[i], boards[i], 0), CN_OK);
    world->job.quorum = BOARDS;
    world->job.up = (struct cn_update_rule){.mode = CN_UPDATE_Q8};
    world->job.robust = (struct cn_robust){.rule = rule, .mix = mix, .tolerate = 1};
    assert_int_equal(world_start(world), CN_OK);
}

// Lets the boards take part, from board first on in turn, until the run is over. restart: the
// aggregator is killed after each update. Returns the digest of the last version.
static void finish_run(struct aggregator_world *world, size_t first, bool restart,
                       uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_round_info info = {0};

    for (int i = 0; i < 300 && info.state != CN_ROUND_ENDED; i++) {
        assert_int_equal(world_tick(world, 500), CN_OK);
        for (size_t k = 0; k < BOARDS; k++) {
            const char *board = boards[(first + k) % BOARDS];

            if (!world_take_part(world, board, board) || !restart)
                continue;
            world_stop(world);
            assert_int_equal(world_start(world), CN_OK);
        }
        assert_true(world_get_round(world, "a", &info));
    }
    assert_int_equal(info.state, CN_ROUND_ENDED);
    memcpy(digest, info.version_digest, CN_DIGEST_SIZE);
}

static void run_once(enum cn_robust_rule rule, enum cn_robust_mix mix, size_t first, bool restart,
                     uint8_t digest[CN_DIGEST_SIZE])
{
    struct aggregator_world *world = calloc(1, sizeof(*world));

    open_world(world, rule, mix);
    // A run's identity is random; it only enters the frames' headers.
    finish_run(world, first, restart, digest);
    world_deinit(world);
    free(world);
}

static void any_order_of_arrival_and_any_kill_give_the_same_version(void **state)
{
    uint8_t digests[CN_ROBUST_CCLIP + 1][CN_DIGEST_SIZE], other[CN_DIGEST_SIZE];

    (void)state;
    for (int rule = CN_ROBUST_NONE; rule <= CN_ROBUST_CCLIP; rule++) {
        run_once((enum cn_robust_rule)rule, CN_ROBUST_MIX_NONE, 0, false, digests[rule]);
        run_once((enum cn_robust_rule)rule, CN_ROBUST_MIX_NONE, 3, true, other);
        assert_memory_equal(digests[rule], other, CN_DIGEST_SIZE);
        for (int earlier = 0; earlier < rule; earlier++)
            assert_memory_not_equal(digests[rule], digests[earlier], CN_DIGEST_SIZE);
    }
}

static void mixing_does_not_depend_on_the_order_either(void **state)
{
    uint8_t digest[CN_DIGEST_SIZE], other[CN_DIGEST_SIZE];

    (void)state;
    for (int mix = CN_ROBUST_MIX_BUCKET; mix <= CN_ROBUST_MIX_NEAREST; mix++) {
        run_once(CN_ROBUST_TRIMMED, (enum cn_robust_mix)mix, 0, false, digest);
        run_once(CN_ROBUST_TRIMMED, (enum cn_robust_mix)mix, 2, true, other);
        assert_memory_equal(digest, other, CN_DIGEST_SIZE);
    }
}

// A run of two rounds in which the store fails at operation number; then the aggregator is killed.
// Returns false when the run was over before that many operations.
static bool run_with_failure(unsigned number, uint8_t digest[CN_DIGEST_SIZE])
{
    struct aggregator_world *world = calloc(1, sizeof(*world));
    struct cn_round_info info = {0};

    open_world(world, CN_ROBUST_CCLIP, CN_ROBUST_MIX_NEAREST);
    world->job.rounds = 2;
    cn_flaky_store_fail(&world->flaky, number, false, CN_EIO);
    for (int i = 0; i < 300 && info.state != CN_ROUND_ENDED; i++) {
        world_keep_alive(world);
        unsigned before = world->flaky.fail_at;
        bool fine = world_tick(world, 500) == CN_OK;
        for (size_t k = 0; k < BOARDS; k++)
            world_take_part(world, boards[k], boards[k]);
        if (!fine || (before && world->flaky.operations >= before)) {
            cn_flaky_store_fail(&world->flaky, 0, false, CN_OK);
            world_stop(world);
            world_keep_alive(world);
        }
        world_get_round(world, "a", &info);
    }
    assert_int_equal(info.state, CN_ROUND_ENDED);
    memcpy(digest, info.version_digest, CN_DIGEST_SIZE);
    bool reached = world->flaky.operations >= number;
    world_deinit(world);
    free(world);
    return reached;
}

// Among the operations are the reads of a merge: the aggregator is killed in the middle of it.
static void a_fault_at_any_operation_gives_the_same_version(void **state)
{
    uint8_t expected[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    unsigned number = 1;

    (void)state;
    run_with_failure(1000000, expected);
    for (bool reached = true; reached; number += 13) {
        reached = run_with_failure(number, digest);
        assert_memory_equal(digest, expected, CN_DIGEST_SIZE);
    }
    assert_true(number > 60); // every 13th operation, of all kinds in turn
}

static void a_run_with_a_center_is_made_again_from_its_files(void **state)
{
    struct aggregator_world *world = calloc(1, sizeof(*world));
    uint8_t digest[CN_DIGEST_SIZE], made[CN_DIGEST_SIZE];
    struct cn_ledger_version recorded;
    struct cn_model parent, next;

    (void)state;
    open_world(world, CN_ROBUST_CCLIP, CN_ROBUST_MIX_NONE);
    finish_run(world, 0, true, digest);
    const struct cn_merge_config config = {
        .store = &world->flaky.store,
        .ledger = world->ledger,
        .layout = &world->layout,
        .job = &world->job,
        .graph = cn_model_store_graph_digest(world->models),
    };
    assert_int_equal(cn_model_load(&world->flaky.store, world->ledger, &world->layout,
                                   cn_merge_state_rows(&world->job), 2, &parent),
                     CN_OK);
    assert_int_equal(parent.state_rows, 1);
    assert_int_equal(cn_merge_round(&config, &parent, &next), CN_OK);
    assert_memory_equal(next.digest, digest, CN_DIGEST_SIZE);
    assert_int_equal(cn_ledger_find_version(world->ledger, 3, &recorded), CN_OK);
    cn_model_state_digest(&next, &world->layout, made);
    assert_memory_equal(made, recorded.state_digest, CN_DIGEST_SIZE);
    cn_model_deinit(&next);
    memset(parent.state, 0, sizeof(float) * world->layout.total); // another center
    assert_int_equal(cn_merge_round(&config, &parent, &next), CN_OK);
    assert_memory_not_equal(next.digest, digest, CN_DIGEST_SIZE);
    cn_model_deinit(&next);
    cn_model_deinit(&parent);
    world_deinit(world);
    free(world);
}

// Lets all boards take part once and the round end, if it can.
static uint32_t version_after_a_round(struct aggregator_world *world, size_t count)
{
    struct cn_round_info info;

    for (size_t i = 0; i < BOARDS; i++)
        assert_true(world_get_round(world, boards[i], &info));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(world_tick(world, 1000), CN_OK);
        for (size_t k = 0; k < count && info.round <= 1; k++)
            world_take_part(world, boards[k], boards[k]);
    }
    assert_true(world_get_round(world, "a", &info));
    return info.version;
}

static void with_too_few_updates_a_round_waits_or_takes_the_capped_mean(void **state)
{
    uint8_t digests[2][CN_DIGEST_SIZE];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct aggregator_world *world = calloc(1, sizeof(*world));

        open_world(world, CN_ROBUST_MULTI_KRUM, CN_ROBUST_MIX_NONE); // needs five
        world_stop(world);
        world->job.quorum = 3;
        assert_int_equal(world_start(world), CN_OK);
        assert_int_equal(version_after_a_round(world, 4), 0); // waits for the fifth
        world_stop(world);
        world->job.robust.when_short = CN_ROBUST_SHORT_CLIP;
        if (i == 1)
            world->job.robust = (struct cn_robust){0};
        assert_int_equal(world_start(world), CN_OK);
        assert_int_equal(version_after_a_round(world, 0), 1);
        memcpy(digests[i], cn_model_store_newest(world->models)->digest, CN_DIGEST_SIZE);
        world_deinit(world);
        free(world);
    }
    assert_memory_equal(digests[0], digests[1], CN_DIGEST_SIZE);
}

static void what_counted_is_recorded_for_each_group(void **state)
{
    struct aggregator_world *world = calloc(1, sizeof(*world));
    uint8_t digest[CN_DIGEST_SIZE];
    unsigned refused = 0;
    struct cn_tally tally;
    uint32_t in_a_row;

    (void)state;
    open_world(world, CN_ROBUST_MULTI_KRUM, CN_ROBUST_MIX_NONE);
    finish_run(world, 0, false, digest);
    for (size_t i = 0; i < BOARDS; i++) {
        assert_int_equal(cn_tally_read(world->ledger, boards[i], &tally), CN_OK);
        assert_int_equal(tally.judged_round, 3);
        assert_true((tally.factor < 0.5) == (tally.refused > 0));
        refused += tally.refused > 0;
    }
    assert_int_equal(refused, 1); // one of five is left out
    for (uint32_t round = 5; round < 9; round++) {
        assert_int_equal(cn_tally_judge(world->ledger, "a", round, 0.1, round != 5, &in_a_row),
                         CN_OK);
        assert_int_equal(in_a_row, round - 5);
    }
    assert_int_equal(cn_tally_judge(world->ledger, "a", 8, 0.1, true, &in_a_row), CN_OK);
    assert_int_equal(in_a_row, 3); // a repeated merge counts once
    world_deinit(world);
    free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_arrival_and_any_kill_give_the_same_version),
        cmocka_unit_test(mixing_does_not_depend_on_the_order_either),
        cmocka_unit_test(a_fault_at_any_operation_gives_the_same_version),
        cmocka_unit_test(a_run_with_a_center_is_made_again_from_its_files),
        cmocka_unit_test(with_too_few_updates_a_round_waits_or_takes_the_capped_mean),
        cmocka_unit_test(what_counted_is_recorded_for_each_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
