// Versions that the gate refuses: which others it compares them with, and what counts as the best.
#include "aggregator/run/run_private.h"
#include "tests/unit/rulings_world.h"

static cn_err fail_start(void *context, uint32_t version, const float *weights, uint64_t now_ms)
{
    (void)context, (void)version, (void)weights, (void)now_ms;
    return CN_ENOMEM;
}

static void a_gate_that_cannot_measure_does_not_stop_the_run(void **state)
{
    struct aggregator_world world;
    struct cn_round_info info = {0};
    struct cn_ruling ruling;
    (void)state;
    begin(&world, 1);
    assert_int_equal(world_start(&world), CN_OK);
    for (int i = 0; i < 400 && info.state != CN_ROUND_ENDED; i++) {
        world.measure.start = fail_start;
        assert_int_equal(world_tick(&world, 500), CN_OK);
        for (size_t board = 0; board < 2; board++)
            world_take_part(&world, boards[board], boards[board]);
        world_get_round(&world, "a", &info);
    }
    assert_int_equal(info.state, CN_ROUND_ENDED);
    assert_int_equal(cn_ruling_newest(world.ledger, CN_RULING_REFUSED, &ruling), CN_ENOTFOUND);
    world_deinit(&world);
}

static void the_gate_compares_with_the_best_of_the_last_versions(void **state)
{
    struct aggregator_world world;
    struct cn_ruling ruling;
    uint8_t digest[CN_DIGEST_SIZE];
    bool refused;
    struct cn_job job = {.gate = {.accuracy = 0.05}};
    struct cn_ledger_metrics metrics = {.loss = 50, .correct = 34, .count = 100};
    (void)state;
    begin(&world, 0);
    finish(&world, 0, digest); // version n is right on 10 * n of 100 samples
    assert_int_equal(cn_gate_judge(world.ledger, &job, 5, &metrics, &refused, &ruling), CN_OK);
    assert_true(refused);
    assert_string_equal(ruling.reason, "its accuracy is 0.3400, the best of the versions before it "
                                       "is 0.4000 and gate.accuracy is 5 %");
    metrics.correct = 36;
    assert_int_equal(cn_gate_judge(world.ledger, &job, 5, &metrics, &refused, &ruling), CN_OK);
    assert_false(refused);
    assert_int_equal(cn_gate_judge(world.ledger, &job, 5, NULL, &refused, &ruling), CN_OK);
    assert_true(refused);
    assert_string_equal(ruling.reason, "its loss is not finite");
    world_deinit(&world);
}

static void add_refusal(struct aggregator_world *world, uint32_t version)
{
    char sql[160];
    snprintf(sql, sizeof(sql),
             "INSERT INTO ruling(version,kind,source,loss,accuracy,reason) VALUES(%u,1,%u,0,0,'x')",
             version, version - 1);
    assert_int_equal(cn_ledger_sql_run(world->ledger, sql), CN_OK);
}

// Each refused version has the measurement of its parent. The best version must not leave the
// window for them: then each bad version would make the next one easier.
static void refused_versions_take_no_place_among_the_five(void **state)
{
    struct aggregator_world world;
    struct cn_ruling ruling;
    uint8_t digest[CN_DIGEST_SIZE];
    bool refused;
    struct cn_job job = {.gate = {.accuracy = 0.05}};
    const struct cn_ledger_metrics metrics = {.loss = 50, .correct = 54, .count = 100};
    struct cn_ledger_metrics best = {.loss = 50, .correct = 60, .count = 100};
    (void)state;
    begin(&world, 0);
    world.job.rounds = 9;
    finish(&world, 0, digest);
    for (uint32_t version = 0; version <= 9; version++) { // 2 is the best, 4 to 9 are refused
        best.correct = version == 2 ? 60 : 56;
        assert_int_equal(cn_ledger_set_central(world.ledger, version, &best), CN_OK);
    }
    for (uint32_t version = 4; version <= 9; version++)
        add_refusal(&world, version);
    assert_int_equal(cn_gate_judge(world.ledger, &job, 10, &metrics, &refused, &ruling), CN_OK);
    assert_true(refused);
    world_deinit(&world);
}

static void versions_that_were_given_up_do_not_count(void **state)
{
    struct aggregator_world world;
    struct cn_run_state end;
    struct cn_run_progress progress = {0};
    struct cn_ruling ruling;
    uint8_t digest[CN_DIGEST_SIZE];
    bool refused;
    struct cn_job job = {.gate = {.accuracy = 0.05}};
    const struct cn_ledger_metrics metrics = {.loss = 50, .correct = 4, .count = 100};
    (void)state;
    begin(&world, 0);
    world.job.loss = CN_LOSS_CROSS_ENTROPY;
    finish(&world, 3, digest); // version 3 is right on 30 of 100 samples, 4 has the weights of 0
    cn_run_get_state(world.run, world_now_ms, &end);
    assert_int_equal(end.progress.best, 0);
    assert_true(end.progress.best_score.known && end.progress.best_score.accuracy == 0);
    assert_int_equal(end.progress.newest_known, 4);
    assert_int_equal(cn_score_progress(world.ledger, &world.job, 2, &progress), CN_OK);
    assert_int_equal(progress.best, 0);
    assert_int_equal(progress.rolled_back, 4);
    assert_int_equal(cn_gate_judge(world.ledger, &job, 5, &metrics, &refused, &ruling), CN_OK);
    assert_false(refused);
    world_deinit(&world);
}

static void patience_begins_again_with_a_rollback(void **state)
{
    const struct cn_job job = {.rounds = 100, .patience = 5};
    struct cn_run_progress progress = {
        .best = 2, .best_score = {.known = true}, .newest_known = 20, .rolled_back = 18};
    (void)state;
    assert_null(cn_score_end(&job, &progress, 20));
    progress.newest_known = 17; // version 18 is not measured yet
    assert_null(cn_score_end(&job, &progress, 18));
    progress.newest_known = 23;
    assert_string_equal(cn_score_end(&job, &progress, 23), "the model stopped getting better");
}

static void a_refused_version_is_never_the_best_one(void **state)
{
    struct aggregator_world world;
    struct cn_run_progress progress = {0};
    const struct cn_ledger_metrics metrics = {.loss = 1, .correct = 99, .count = 100};
    uint8_t digest[CN_DIGEST_SIZE];
    (void)state;
    begin(&world, 1);
    world.job.loss = CN_LOSS_CROSS_ENTROPY;
    finish(&world, 0, digest); // version 2 is refused
    assert_int_equal(cn_ledger_set_central(world.ledger, 2, &metrics), CN_OK);
    assert_int_equal(cn_score_progress(world.ledger, &world.job, 0, &progress), CN_OK);
    assert_int_equal(progress.best, 4);
    world_deinit(&world);
}

static void what_the_gate_measures_is_counted_and_watched(void **state)
{
    struct aggregator_world world;
    struct cn_run_state seen = {0};
    bool warned = false;
    (void)state;
    begin(&world, 0);
    world.job.patience = 40; // each round waits for the measurement
    assert_int_equal(world_start(&world), CN_OK);
    for (int i = 0; i < 400 && seen.phase != CN_RUN_ENDED; i++) {
        assert_int_equal(world_tick(&world, 500), CN_OK);
        for (size_t board = 0; board < 2; board++)
            world_take_part(&world, boards[board], boards[board]);
        cn_run_get_state(world.run, world_now_ms, &seen);
        if (seen.warning[0]) { // version 2
            warned = true;
            world.job.gate.loss = 10;
        }
    }
    assert_int_equal(seen.phase, CN_RUN_ENDED);
    assert_true(warned);
    assert_string_equal(seen.warning, "");
    assert_int_equal(cn_run_count(world.run)->evaluation.count, 5);
    assert_int_equal(cn_run_count(world.run)->merge.count, 4);
    world_deinit(&world);
}

// The ratio of two losses says nothing once they may be negative.
static void a_loss_of_the_model_itself_is_watched_by_its_magnitude(void **state)
{
    const struct {
        double parent, loss;
        bool warns;
    } cases[] = {{-2, -1.9, false}, {-2, 3.9, false},     {-2, 4.1, true}, {2, 7.9, false},
                 {2, 8.1, true},    {0.001, 0.02, false}, {0, 1.4, false}, {-0.001, 1.6, true}};
    const struct cn_ledger_metrics first = {.loss = 50, .count = 100};
    struct aggregator_world world;
    struct cn_run run = {0};
    uint8_t digest[CN_DIGEST_SIZE];
    (void)state;
    begin(&world, 0);
    finish(&world, 0, digest);
    world.job.loss = CN_LOSS_OUTPUT;
    run.config.job = &world.job;
    run.config.ledger = world.ledger;
    assert_int_equal(cn_ledger_set_central(world.ledger, 0, &first), CN_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct cn_ledger_metrics parent = {.loss = 100 * cases[i].parent, .count = 100};
        const struct cn_ledger_metrics now = {.loss = 100 * cases[i].loss, .count = 100};
        assert_int_equal(cn_ledger_set_central(world.ledger, 3, &parent), CN_OK);
        cn_run_watch_loss(&run, 4, &now);
        assert_int_equal(run.warning[0] != '\0', cases[i].warns);
    }
    world_deinit(&world);
}

static void the_gate_takes_negative_losses(void **state)
{
    struct aggregator_world world;
    struct cn_ruling ruling;
    uint8_t digest[CN_DIGEST_SIZE];
    bool refused;
    struct cn_job job = {.gate = {.loss = 0.5}, .loss = CN_LOSS_OUTPUT};
    struct cn_ledger_metrics metrics = {.loss = -300, .count = 100};
    (void)state;
    begin(&world, 0);
    finish(&world, 0, digest);
    assert_int_equal(cn_ledger_set_central(world.ledger, 3, &metrics), CN_OK);
    metrics.loss = -251;
    assert_int_equal(cn_gate_judge(world.ledger, &job, 4, &metrics, &refused, &ruling), CN_OK);
    assert_false(refused);
    metrics.loss = -249;
    assert_int_equal(cn_gate_judge(world.ledger, &job, 4, &metrics, &refused, &ruling), CN_OK);
    assert_true(refused);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gate_that_cannot_measure_does_not_stop_the_run),
        cmocka_unit_test(a_loss_of_the_model_itself_is_watched_by_its_magnitude),
        cmocka_unit_test(the_gate_takes_negative_losses),
        cmocka_unit_test(the_gate_compares_with_the_best_of_the_last_versions),
        cmocka_unit_test(refused_versions_take_no_place_among_the_five),
        cmocka_unit_test(versions_that_were_given_up_do_not_count),
        cmocka_unit_test(patience_begins_again_with_a_rollback),
        cmocka_unit_test(a_refused_version_is_never_the_best_one),
        cmocka_unit_test(what_the_gate_measures_is_counted_and_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
