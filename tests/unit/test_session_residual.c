// The residual: what a round's update leaves out or does not deliver waits there, or is dropped.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_state.h"
#include "tests/unit/session_world.h"

// Versions that the residual missed, and what is left of it.
static void a_stale_residual_counts_less_for_each_version_more(void **state)
{
    static const struct {
        uint32_t missed;
        float left;
    } cases[] = {{0, 1}, {3, 1}, {4, 0.9f}, {6, 0.9f * 0.9f * 0.9f}};
    struct session_world *world = *state;

    world_open_session(world);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_checkpoint *held = &world->session->held;
        float one = 1, left;

        assert_int_equal(cn_session_allocate_residual(world->session), CN_OK);
        cn_row_write(&held->residual, 5, 1, &one);
        held->residual_version = 2;
        held->version = 2 + cases[i].missed;
        world_begin(world, (uint32_t)i + 1);
        cn_row_read(&held->residual, 5, 1, &left);
        assert_true(fabsf(left - cases[i].left) < 1e-6f);
        // It decays once for what it missed, not again in the next round.
        assert_int_equal(held->residual_version, cases[i].missed > 3 ? held->version : 2);
        assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    }
}

static void expect_no_decay(struct session_world *world, const char *name)
{
    struct cn_checkpoint *held;
    const struct cn_tensor_info *mean;
    float one = 1, left;

    world_open_session(world);
    held = &world->session->held;
    mean = world_find(world, name);
    assert_int_equal(cn_session_allocate_residual(world->session), CN_OK);
    cn_row_write(&held->residual, mean->offset, 1, &one);
    cn_row_write(&held->residual, world_find(world, "5.bias")->offset, 1, &one);
    held->residual_version = 2;
    held->version = 8;
    world_begin(world, 1);
    cn_row_read(&held->residual, mean->offset, 1, &left);
    assert_true(left == 1);
    cn_row_read(&held->residual, world_find(world, "5.bias")->offset, 1, &left);
    assert_true(fabsf(left - 0.9f * 0.9f * 0.9f) < 1e-6f);
}

static void local_statistics_do_not_decay_with_the_residual(void **state)
{
    struct session_world *world = *state;

    world->job.statistics = CN_STATISTICS_LOCAL;
    expect_no_decay(world, "1.running_mean");
}

static void personal_layers_do_not_decay_with_the_residual(void **state)
{
    struct session_world *world = *state;

    snprintf(world->job.options.local, CN_WORDS_SIZE, "5.weight");
    expect_no_decay(world, "5.weight");
}

static cn_err take_values(void *context, size_t offset, const float *values, size_t count)
{
    memcpy((float *)context + offset, values, count * sizeof(*values));
    return CN_OK;
}

static void shared_statistics_travel_and_local_ones_stay(void **state)
{
    struct session_world *world = *state;
    const struct cn_checkpoint *held;
    const struct cn_tensor_info *mean, *bias;
    float sent[512], before, after;
    bool biased = false;

    world->job.statistics = CN_STATISTICS_LOCAL;
    world_open_session(world);
    held = &world->session->held;
    mean = world_find(world, "1.running_mean");
    bias = world_find(world, "5.bias");
    world_train(world, 1);
    assert_int_equal(
        cn_update_decode(held->frame, held->frame_size, world->session->layout, take_values, sent),
        CN_OK);
    assert_true(sent[mean->offset] == 0);
    for (size_t i = 0; i < bias->count; i++)
        biased |= sent[bias->offset + i] != 0;
    assert_true(biased);
    cn_row_read(&held->next_residual, mean->offset, 1, &before);
    assert_true(before != 0);
    world_decide(world, CN_VERDICT_ACCEPTED, 1, held->frame_digest);

    // The next round begins with the group's own, though its version has others.
    world_begin(world, 2);
    after = held->weights[mean->offset];
    assert_true(after == held->base[mean->offset] + before);
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);

    world->job.statistics = CN_STATISTICS_SHARED;
    world_train(world, 3);
    assert_int_equal(
        cn_update_decode(held->frame, held->frame_size, world->session->layout, take_values, sent),
        CN_OK);
    assert_true(sent[mean->offset] != 0);
}

static void add_up(const struct session_world *world, const char *name, double *sum)
{
    const struct cn_tensor_info *tensor = world_find(world, name);
    const struct cn_checkpoint *held = &world->session->held;

    *sum = 0;
    for (size_t i = 0; i < tensor->count; i++) {
        float value = 0;

        if (held->residual.data)
            cn_row_read(&held->residual, tensor->offset + i, 1, &value);
        *sum += fabs((double)value);
    }
}

// Whatever becomes of a round's update, what a personal layer learned stays.
static void a_personal_layer_is_never_sent_nor_forgotten(void **state)
{
    struct session_world *world = *state;
    struct cn_checkpoint *held;
    const struct cn_tensor_info *head;
    struct cn_decision other = {.verdict = CN_VERDICT_ACCEPTED, .round = 2, .digest = {1}};
    float sent[512];
    double first, second, bias;

    snprintf(world->job.options.local, CN_WORDS_SIZE, "5.weight");
    world->job.rules.proximal = 0.1;
    world_open_session(world);
    held = &world->session->held;
    head = world_find(world, "5.weight");
    world_train(world, 1);
    assert_int_equal(
        cn_update_decode(held->frame, held->frame_size, world->session->layout, take_values, sent),
        CN_OK);
    for (size_t i = 0; i < head->count; i++)
        assert_true(sent[head->offset + i] == 0);
    world_decide(world, CN_VERDICT_ACCEPTED, 1, held->frame_digest);
    add_up(world, "5.weight", &first);
    assert_true(first > 0);
    world_begin(world, 2); // another part of the group delivers this round
    assert_int_equal(cn_session_abandon(world->session, &other), CN_OK);
    add_up(world, "5.weight", &second);
    add_up(world, "5.bias", &bias);
    assert_true(second == first && bias == 0);
    world_install(world, 0); // a version does not bring the layer back to its beginning either
    world_begin(world, 3);
    for (size_t i = 0; i < head->count; i++) {
        float own;

        cn_row_read(&held->residual, head->offset + i, 1, &own);
        assert_true(held->weights[head->offset + i] == held->base[head->offset + i] + own);
    }
}

// Round for round what waits is that in float32, rounded; nothing is lost on the way.
static void a_residual_in_halves_keeps_what_was_left_out(void **state)
{
    struct session_world *world = *state;
    struct cn_checkpoint *held;
    float *sent, *change, *waiting, *waited;
    size_t total;

    world->job.options.residual = CN_RESIDUAL_BF16;
    world->job.up.mode = CN_UPDATE_SIGN;
    world_open_session(world);
    held = &world->session->held;
    total = held->total;
    sent = calloc(4 * total, sizeof(*sent));
    change = sent + total;
    waiting = change + total;
    waited = waiting + total;
    for (uint32_t round = 1; round <= 3; round++) {
        if (held->residual.data)
            cn_row_read(&held->residual, 0, total, waited);
        world_train(world, round);
        assert_true(held->next_residual.half && held->change.half);
        assert_int_equal(cn_row_width(&held->next_residual), 2);
        assert_int_equal(cn_session_change(world->session, change), CN_OK);
        for (size_t i = 0; i < total; i++)
            change[i] += waited[i];
        assert_int_equal(cn_update_decode(held->frame, held->frame_size, world->session->layout,
                                          take_values, sent),
                         CN_OK);
        cn_row_read(&held->next_residual, 0, total, waiting);
        for (size_t i = 0; i < total; i++) {
            float left = change[i] - sent[i];

            assert_true(fabsf(waiting[i] - left) <= fabsf(left) / 256);
        }
        world_decide(world, CN_VERDICT_ACCEPTED, round, held->frame_digest);
    }
    free(sent);
}

// The memory of the residual is that of the next one, which is not made then.
static void expect_untouched(struct session_world *world)
{
    atomic_uint given_up = 0;
    struct cn_checkpoint *held;
    struct cn_buffer frame;
    float *rows;

    world_open_session(world);
    held = &world->session->held;
    rows = calloc(2 * held->total, sizeof(*rows));
    world_train(world, 1);
    world_decide(world, CN_VERDICT_REJECTED, 0, held->base_digest);
    world_begin(world, 2);
    held->samples = 1;
    cn_row_read(&held->residual, 0, held->total, rows);
    rows[2 * held->total - 1] = NAN;
    assert_int_equal(cn_trainer_set_weights(world->session->trainer, rows + held->total), CN_OK);
    cn_buffer_init(&frame, cn_update_size_max(world->session->layout));
    assert_int_equal(cn_session_encode(world->session, &frame), CN_EDIVERGED);
    cn_buffer_deinit(&frame);
    cn_row_read(&held->residual, 0, held->total, rows + held->total);
    assert_memory_equal(rows, rows + held->total, held->total * sizeof(*rows));
    world->session->config.given_up = &given_up;
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    assert_int_equal(atomic_load(&given_up), held->round);
    free(rows);
}

static void a_change_that_is_not_finite_leaves_the_residual_alone(void **state)
{
    expect_untouched(*state);
}

static void a_change_that_is_not_finite_leaves_a_residual_in_halves_alone(void **state)
{
    struct session_world *world = *state;

    world->job.options.residual = CN_RESIDUAL_BF16;
    expect_untouched(world);
}

static void a_residual_that_another_part_of_the_group_delivered_is_emptied(void **state)
{
    struct session_world *world = *state;
    const struct cn_link_path_stats link = {0};
    struct cn_round_order order;
    struct cn_checkpoint *held;
    float one = 1, left;

    world_open_session(world);
    held = &world->session->held;
    world_train(world, 1);
    world_decide(world, CN_VERDICT_ACCEPTED, 1, held->frame_digest);
    for (uint32_t other = 0; other < 2; other++) {
        cn_row_write(&held->residual, 5, 1, &one);
        cn_session_plan(world->session, 2 + other, &link, 60000, &order);
        order.newest.round = 1 + other; // its own update, then one that it knows nothing of
        memcpy(order.newest.digest, held->frame_digest, CN_DIGEST_SIZE);
        order.newest.digest[0] ^= (uint8_t)other;
        assert_int_equal(cn_session_begin(world->session, &order), CN_OK);
        cn_row_read(&held->residual, 5, 1, &left);
        assert_true(left == (other ? 0 : 1));
        assert_int_equal(held->counted.round, 1 + other);
        assert_int_equal(held->counted.own, !other);
        assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    }
}

static void the_residual_and_the_moments_of_versions_that_were_given_up_are_dropped(void **state)
{
    static const struct {
        uint32_t number, forget;
        bool emptied;
    } cases[] = {
        {5, 0, false}, // no version went back
        {5, 3, false}, // the residual is of a later round
        {4, 5, false}, // on the way to it
        {5, 5, true},  // this one went back
        {7, 6, true},  // one that was not taken did
    };
    struct session_world *world = *state;
    struct cn_checkpoint *held;
    float one = 1, left;

    world_open_session(world);
    held = &world->session->held;
    world_train(world, 1);
    world_decide(world, CN_VERDICT_ACCEPTED, 1, held->frame_digest);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct cn_session_version version = {.number = cases[i].number,
                                                   .forget = cases[i].forget};

        cn_row_write(&held->residual, 5, 1, &one);
        assert_int_equal(cn_session_allocate_optimizer(world->session), CN_OK);
        held->optimizer[5] = 1;
        held->residual_version = 4;
        held->version = version.number;
        cn_session_follow_rollback(world->session, &version);
        cn_row_read(&held->residual, 5, 1, &left);
        assert_true(left == (cases[i].emptied ? 0 : 1));
        assert_true(cases[i].emptied ? !held->optimizer : held->optimizer[5] == 1);
        assert_int_equal(held->residual_version, cases[i].emptied ? version.number : 4);
    }
}

static void a_round_given_up_waits_unless_another_part_of_the_group_delivered_it(void **state)
{
    struct cn_decision decision = {.verdict = CN_VERDICT_LATE};
    struct session_world *world = *state;
    struct cn_checkpoint *held;
    struct cn_step_flags flags = {0};
    size_t waiting = 0;
    float value;

    world_open_session(world);
    held = &world->session->held;
    world_begin(world, 1);
    assert_int_equal(cn_session_step(world->session, world->alone, &flags), CN_OK);
    assert_int_equal(cn_session_abandon(world->session, &decision), CN_OK);
    for (size_t i = 0; i < held->total; i++) {
        cn_row_read(&held->residual, i, 1, &value);
        waiting += value != 0;
    }
    assert_true(waiting > held->total / 2);
    world_begin(world, 2);
    assert_int_equal(cn_session_step(world->session, world->alone, &flags), CN_OK);
    decision.round = 2;
    memset(decision.digest, 'x', CN_DIGEST_SIZE);
    assert_int_equal(cn_session_abandon(world->session, &decision), CN_OK);
    for (size_t i = 0; i < held->total; i++) {
        cn_row_read(&held->residual, i, 1, &value);
        assert_true(value == 0);
    }
    assert_int_equal(held->counted.round, 2);
    assert_false(held->counted.own);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, session_world_set_up, session_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_stale_residual_counts_less_for_each_version_more),
        TEST(local_statistics_do_not_decay_with_the_residual),
        TEST(personal_layers_do_not_decay_with_the_residual),
        TEST(a_personal_layer_is_never_sent_nor_forgotten),
        TEST(shared_statistics_travel_and_local_ones_stay),
        TEST(a_residual_in_halves_keeps_what_was_left_out),
        TEST(a_change_that_is_not_finite_leaves_the_residual_alone),
        TEST(a_change_that_is_not_finite_leaves_a_residual_in_halves_alone),
        TEST(a_residual_that_another_part_of_the_group_delivered_is_emptied),
        TEST(the_residual_and_the_moments_of_versions_that_were_given_up_are_dropped),
        TEST(a_round_given_up_waits_unless_another_part_of_the_group_delivered_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
