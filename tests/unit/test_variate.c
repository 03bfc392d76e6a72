// Control variates: the way that steps go, a group's variate after an update, the server's frame.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/update/variate.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {
    {6000, CN_TENSOR_PARAM}, {300, CN_TENSOR_PARAM}, {10, CN_TENSOR_STAT}};
#define TOTAL 6310
#define PERSONAL 6000 // first value of the second tensor
#define STATISTIC 6300

struct fixture {
    struct cn_layout layout;
    struct cn_buffer frame;
    float values[TOTAL], decoded[TOTAL], server[TOTAL], own[TOTAL];
    uint8_t digest[CN_DIGEST_SIZE];
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->layout = cn_test_layout(tensors, 3);
    cn_buffer_init(&f->frame, 1 << 20);
    cn_test_fill(f->values, TOTAL, 1, 0.01f);
    cn_test_fill(f->server, TOTAL, 2, 0.1f);
    cn_test_fill(f->own, TOTAL, 3, 0.1f);
    memset(f->digest, 5, sizeof(f->digest));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    cn_buffer_deinit(&f->frame);
    cn_test_layout_free(&f->layout);
    free(f);
    return 0;
}

static void encode_update(struct fixture *f, enum cn_update_mode mode)
{
    const struct cn_update_header header = {.round = 3, .weight = 1, .rule = {.mode = mode}};

    f->frame.size = 0;
    assert_int_equal(cn_update_encode(&header, &f->layout, f->values, f->decoded, &f->frame),
                     CN_OK);
}

static void the_way_is_the_sum_of_the_rates_of_the_steps(void **state)
{
    struct cn_job job = {.rounds = 10, .local_steps = 4, .learning_rate = 0.5};

    (void)state;
    assert_true(fabs(cn_variate_distance(&job, 1, 4) - 2) < 1e-12);
    job.rules.schedule = CN_SCHEDULE_STEP; // a tenth from step 4 on, a hundredth from step 8 on
    job.rules.every = 4;
    job.rules.factor = 0.1;
    assert_true(fabs(cn_variate_distance(&job, 1, 4) - 2) < 1e-6);
    assert_true(fabs(cn_variate_distance(&job, 2, 4) - 0.2) < 1e-7);
    assert_true(fabs(cn_variate_distance(&job, 3, 2) - 0.01) < 1e-8);
    job.local_steps_most = 8; // rounds have room for more steps
    assert_true(fabs(cn_variate_distance(&job, 2, 4) - 0.02) < 1e-8);
    job.rules = (struct cn_rules){.schedule = CN_SCHEDULE_COSINE};
    for (int round = 1; round <= 10; round++) { // 80 steps, of which each round has 8
        double wanted = 0;

        for (int i = 0; i < 4; i++)
            wanted += 0.25 * (1 + cos(3.14159265358979 * (8 * (round - 1) + i) / 80));
        assert_true(fabs(cn_variate_distance(&job, (uint32_t)round, 4) - wanted) < 1e-6);
    }
}

// With a momentum of a half the steps go 1, 1.5, 1.75; Nesterov's 1.5, 1.75, 1.875.
static void momentum_and_a_pull_change_the_way(void **state)
{
    struct cn_job job = {.rounds = 10, .local_steps = 3, .learning_rate = 1, .momentum = 0.5};

    (void)state;
    assert_true(fabs(cn_variate_distance(&job, 1, 3) - 4.25) < 1e-12);
    job.rules.nesterov = true;
    assert_true(fabs(cn_variate_distance(&job, 1, 3) - 5.125) < 1e-12);
    job = (struct cn_job){.local_steps = 3, .learning_rate = 1, .rules.proximal = 0.5};
    assert_true(fabs(cn_variate_distance(&job, 1, 3) - 1.75) < 1e-12); // 1 + 0.5 + 0.25
    job.rules.proximal = 1e6; // a pull that makes the weights diverge
    assert_true(cn_variate_distance(&job, 1, 1000) >= 1e-30);
    assert_true(isfinite(16 * cn_variate_inverse(cn_variate_distance(&job, 1, 1000))));
}

static void a_variate_becomes_the_mean_gradient_of_the_round(void **state)
{
    struct fixture *f = *state;
    const float inverse = 8;
    float before[TOTAL];

    encode_update(f, CN_UPDATE_Q8);
    memcpy(before, f->own, sizeof(before));
    assert_int_equal(
        cn_variate_advance(&f->layout, f->frame.data, f->frame.size, f->server, inverse, f->own),
        CN_OK);
    for (size_t i = 0; i < STATISTIC; i++) {
        float rest = before[i] - f->server[i], gradient = f->decoded[i] * inverse;

        assert_true(f->own[i] == rest - gradient);
    }
    assert_memory_equal(f->own + STATISTIC, before + STATISTIC, 10 * sizeof(float));
}

static void a_server_without_a_variate_has_zeros(void **state)
{
    struct fixture *f = *state;
    float with[TOTAL];

    encode_update(f, CN_UPDATE_RAW32);
    memcpy(with, f->own, sizeof(with));
    memset(f->server, 0, sizeof(f->server));
    assert_int_equal(
        cn_variate_advance(&f->layout, f->frame.data, f->frame.size, f->server, 2, with), CN_OK);
    assert_int_equal(cn_variate_advance(&f->layout, f->frame.data, f->frame.size, NULL, 2, f->own),
                     CN_OK);
    assert_memory_equal(with, f->own, sizeof(with));
}

static void tensors_of_a_group_and_skipped_updates_leave_it_as_it_is(void **state)
{
    struct fixture *f = *state;
    float before[TOTAL];

    memcpy(before, f->own, sizeof(before));
    encode_update(f, CN_UPDATE_SKIP);
    assert_int_equal(
        cn_variate_advance(&f->layout, f->frame.data, f->frame.size, f->server, 2, f->own), CN_OK);
    assert_memory_equal(f->own, before, sizeof(before));
    f->layout.tensors[1].local = true;
    encode_update(f, CN_UPDATE_RAW32);
    assert_int_equal(
        cn_variate_advance(&f->layout, f->frame.data, f->frame.size, f->server, 2, f->own), CN_OK);
    assert_memory_equal(f->own + PERSONAL, before + PERSONAL, 310 * sizeof(float));
    assert_memory_not_equal(f->own, before, PERSONAL * sizeof(float));
}

static void a_damaged_update_changes_nothing(void **state)
{
    struct fixture *f = *state;
    float before[TOTAL];

    encode_update(f, CN_UPDATE_Q8);
    memcpy(before, f->own, sizeof(before));
    f->frame.data[f->frame.size / 2] ^= 1;
    assert_int_not_equal(
        cn_variate_advance(&f->layout, f->frame.data, f->frame.size, f->server, 2, f->own), CN_OK);
    assert_memory_equal(f->own, before, sizeof(before));
}

static void boards_decode_what_the_gateway_computes_with(void **state)
{
    struct fixture *f = *state;
    float sent[TOTAL];

    f->server[7] = 1e9f; // beyond what a frame holds
    f->server[8] = -1e9f;
    assert_int_equal(cn_variate_encode(&f->layout, 9, 4, f->digest, f->server, sent, &f->frame),
                     CN_OK);
    assert_int_equal(cn_variate_decode(&f->layout, 9, 4, f->digest, f->frame.data, f->frame.size,
                                       NULL, f->values),
                     CN_OK);
    assert_memory_equal(f->values, sent, STATISTIC * sizeof(float));
    assert_true(f->values[7] == 16 && f->values[8] == -16);
    for (size_t i = STATISTIC; i < TOTAL; i++)
        assert_true(f->values[i] == 0);
}

static void a_variate_for_another_version_is_refused(void **state)
{
    struct fixture *f = *state;
    uint8_t other[CN_DIGEST_SIZE] = {1};
    const struct cn_layout *layout = &f->layout;

    assert_int_equal(cn_variate_encode(layout, 9, 4, f->digest, f->server, NULL, &f->frame), CN_OK);
    assert_int_equal(
        cn_variate_decode(layout, 9, 5, f->digest, f->frame.data, f->frame.size, NULL, f->values),
        CN_ESTALE);
    assert_int_equal(
        cn_variate_decode(layout, 8, 4, f->digest, f->frame.data, f->frame.size, NULL, f->values),
        CN_ESTALE);
    assert_int_equal(
        cn_variate_decode(layout, 9, 4, other, f->frame.data, f->frame.size, NULL, f->values),
        CN_ESTALE);
    for (size_t size = 0; size < f->frame.size; size += 97)
        assert_int_not_equal(
            cn_variate_decode(layout, 9, 4, f->digest, f->frame.data, size, NULL, f->values),
            CN_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_way_is_the_sum_of_the_rates_of_the_steps),
        cmocka_unit_test(momentum_and_a_pull_change_the_way),
        TEST(a_variate_becomes_the_mean_gradient_of_the_round),
        TEST(a_server_without_a_variate_has_zeros),
        TEST(tensors_of_a_group_and_skipped_updates_leave_it_as_it_is),
        TEST(a_damaged_update_changes_nothing),
        TEST(boards_decode_what_the_gateway_computes_with),
        TEST(a_variate_for_another_version_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
