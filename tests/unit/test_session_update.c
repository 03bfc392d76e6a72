// A round of a board that is alone, from its order to its update and what is decided of it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/update/version.h"
#include "tests/unit/session_world.h"

// The order of a member that lies. With such a rule no frame could be made at the end of the round.
static void an_order_with_an_impossible_rule_is_refused(void **state)
{
    static const struct cn_update_rule rules[] = {
        {CN_UPDATE_TOPK, NAN, 2}, {CN_UPDATE_TOPK, 2, 2},           {CN_UPDATE_TOPK, 0.5, 9},
        {CN_UPDATE_AUTO, 0.5, 2}, {(enum cn_update_mode)9, 0.5, 2},
    };
    struct session_world *world = *state;
    struct cn_link_path_stats link = {0};
    struct cn_round_order order;

    world_open_session(world);
    cn_session_plan(world->session, 1, &link, 60000, &order);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct cn_round_order lie = order;

        lie.rule = rules[i];
        assert_int_equal(cn_session_begin(world->session, &lie), CN_EFORMAT);
    }
    order.newest.round = 2; // counted before it is begun
    assert_int_equal(cn_session_begin(world->session, &order), CN_EFORMAT);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);
}

static void a_negative_loss_is_sent_where_the_model_computes_it(void **state)
{
    struct session_world *world = *state;
    struct cn_link_upload upload = {0};
    struct cn_checkpoint *held;

    world_open_session(world);
    held = &world->session->held;
    held->held_out_count = 7;
    held->held_out_loss = -21;
    cn_session_fill_measured(world->session, &upload);
    assert_int_equal(upload.held_out_count, 0);
    world->job.loss = CN_LOSS_OUTPUT;
    cn_session_fill_measured(world->session, &upload);
    assert_int_equal(upload.held_out_count, 7);
    assert_true(upload.held_out_loss < -20);
}

static void control_variates_count_in_the_memory_plan(void **state)
{
    struct session_world *world = *state;
    const struct cn_layout *layout;

    world_reopen(world);
    layout = world->session->layout;
    assert_int_equal(cn_trainer_plan(world->session->trainer)->copies,
                     cn_version_memory(layout) + 4 * (uint64_t)layout->total);
    cn_session_close(world->session);
    world->job.correction.kind = CN_CORRECTION_SCAFFOLD;
    world_reopen(world);
    layout = world->session->layout;
    assert_int_equal(cn_trainer_plan(world->session->trainer)->copies,
                     cn_version_memory(layout) + 12 * (uint64_t)layout->total);
}

// A state that is stored in a round has the optimizer's rows: two of Adam.
static void the_rows_of_a_stored_state_count_in_the_memory_plan(void **state)
{
    struct session_world *world = *state;
    struct cn_job *job = &world->job;
    uint64_t row, version;

    world_reopen(world);
    row = 4 * (uint64_t)world->session->layout->total;
    version = cn_version_memory(world->session->layout) + row;
    for (int kept = 0; kept < 2; kept++)
        for (int adam = 0; adam < 2; adam++) {
            uint64_t optimizer = adam ? 2 * row : row, arrives = version + (kept ? optimizer : 0);

            cn_session_close(world->session);
            job->rules.optimizer = adam ? CN_OPTIMIZER_ADAM : CN_OPTIMIZER_SGD;
            job->keep_optimizer = kept;
            world_reopen(world);
            assert_int_equal(cn_trainer_plan(world->session->trainer)->copies,
                             arrives > 3 * row + optimizer ? arrives : 3 * row + optimizer);
        }
}

static void the_first_rounds_send_more(void **state)
{
    static const double expected[] = {0.25, 0.1, 0.04, 0.016, 0.01, 0.01};
    struct session_world *world = *state;
    const struct cn_link_path_stats link = {0};
    struct cn_round_order order;

    world->job.up = (struct cn_update_rule){CN_UPDATE_TOPK, 0.01, 2};
    world->job.warm_up = 4;
    world_open_session(world);
    for (uint32_t round = 1; round <= 6; round++) {
        cn_session_plan(world->session, round, &link, 60000, &order);
        assert_true(fabs(order.rule.density - expected[round - 1]) < 1e-12);
    }
    world->job.warm_up = 2; // it ends early, never below what the job says
    cn_session_plan(world->session, 3, &link, 60000, &order);
    assert_true(order.rule.density == 0.01);
    world->job.up.density = 0.2;
    cn_session_plan(world->session, 2, &link, 60000, &order);
    assert_true(order.rule.density == 0.2);
}

// A model with a tensor that is large enough to be sparse.
static void take_digits(struct session_world *world)
{
    struct cn_data_paths *data = &world->settings.data[0];

    snprintf(data->inputs, CN_PATH_SIZE, CAIRN_TEST_DATA "/digits/board-1-images.npy");
    snprintf(data->labels, CN_PATH_SIZE, CAIRN_TEST_DATA "/digits/board-1-labels.npy");
    world->job.scale = 0.0625;
    cn_platform_unmap(&world->model);
    assert_int_equal(
        cn_platform_map(CAIRN_TEST_DATA "/digits/digits-mlp.onnx", 1 << 20, &world->model), CN_OK);
}

static void momentum_of_what_was_sent_is_forgotten(void **state)
{
    struct session_world *world = *state;
    const struct cn_checkpoint *held;
    size_t forgotten = 0, kept = 0;

    take_digits(world);
    world->job.keep_optimizer = true;
    world->job.up = (struct cn_update_rule){CN_UPDATE_TOPK, 0.05, 2};
    world_open_session(world);
    world_train(world, 1);
    held = &world->session->held;
    for (size_t i = 0; i < held->total; i++) {
        float change, left;

        cn_row_read(&held->change, i, 1, &change);
        cn_row_read(&held->next_residual, i, 1, &left);
        if (change == left) {
            kept += held->optimizer[i] != 0;
            continue;
        }
        assert_true(held->optimizer[i] == 0);
        forgotten++;
    }
    assert_true(forgotten > 200 && kept > 2000);
    kept = 0;
    world->job.up.mode = CN_UPDATE_Q8; // dense modes keep all of it
    world_decide(world, CN_VERDICT_LATE, 0, held->base_digest);
    world_train(world, 2);
    for (size_t i = 0; i < held->total; i++)
        kept += held->optimizer[i] != 0;
    assert_true(kept > 3000);
}

// What the residual is after a round: what the frame left out, all of the change, or nothing.
enum left { LEFT_OUT, ALL, NOTHING };

static void expect_left(struct session_world *world, enum left left, const float *left_out,
                        const float *change)
{
    const struct cn_checkpoint *held = &world->session->held;
    float value;

    for (size_t i = 0; i < held->total; i++) {
        cn_row_read(&held->residual, i, 1, &value);
        assert_true(value == (left == NOTHING ? 0 : left == ALL ? change[i] : left_out[i]));
    }
}

static void a_step_that_another_part_of_the_group_delivered_does_not_count_again(void **state)
{
    static const struct {
        enum cn_update_mode mode;
        enum cn_verdict verdict;
        uint32_t after; // rounds later than this one is the one that was decided
        uint8_t digest; // of what counts; 0 for nothing, 1 for the own frame
        enum left left;
    } cases[] = {
        {CN_UPDATE_Q8, CN_VERDICT_ACCEPTED, 0, 1, LEFT_OUT},
        {CN_UPDATE_Q8, CN_VERDICT_REJECTED, 0, 0, ALL},
        {CN_UPDATE_Q8, CN_VERDICT_LATE, 0, 0, ALL},
        {CN_UPDATE_Q8, CN_VERDICT_REJECTED, 0, 'x', LEFT_OUT},
        {CN_UPDATE_Q8, CN_VERDICT_ACCEPTED, 0, 'x', LEFT_OUT},
        {CN_UPDATE_Q8, CN_VERDICT_LATE, 2, 'x', LEFT_OUT},
        {CN_UPDATE_SKIP, CN_VERDICT_ACCEPTED, 0, 1, ALL},
        {CN_UPDATE_SKIP, CN_VERDICT_REJECTED, 0, 'x', NOTHING},
    };
    struct session_world *world = *state;
    uint32_t counted = 0;

    world_open_session(world);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_checkpoint *held = &world->session->held;
        float *rows = calloc(2 * held->total, sizeof(*rows));
        uint32_t round = 10 * i + 1;
        uint8_t digest[CN_DIGEST_SIZE];

        world->job.up.mode = cases[i].mode;
        world_train(world, round);
        cn_row_read(&held->next_residual, 0, held->total, rows);
        cn_row_read(&held->change, 0, held->total, rows + held->total);
        memset(digest, cases[i].digest, sizeof(digest));
        if (cases[i].digest == 1)
            memcpy(digest, held->frame_digest, CN_DIGEST_SIZE);
        world_decide(world, cases[i].verdict, cases[i].digest ? round + cases[i].after : 0, digest);
        expect_left(world, cases[i].left, rows, rows + held->total);
        counted = cases[i].digest ? round + cases[i].after : counted;
        assert_int_equal(held->counted.round, counted);
        if (cases[i].digest)
            assert_int_equal(held->counted.own, cases[i].digest == 1);
        free(rows);
    }
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, session_world_set_up, session_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_order_with_an_impossible_rule_is_refused),
        TEST(a_negative_loss_is_sent_where_the_model_computes_it),
        TEST(control_variates_count_in_the_memory_plan),
        TEST(the_rows_of_a_stored_state_count_in_the_memory_plan),
        TEST(the_first_rounds_send_more),
        TEST(momentum_of_what_was_sent_is_forgotten),
        TEST(a_step_that_another_part_of_the_group_delivered_does_not_count_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
