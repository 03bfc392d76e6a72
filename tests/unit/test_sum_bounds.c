#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <math.h>

#include "runtime/round/session/sum_bounds.h"

static void possible_sums_over_held_out_samples_count(void **state)
{
    (void)state;
    assert_true(cn_sum_is_measured(0, 0, 0));
    assert_true(cn_sum_is_measured(12.5f, 71, 71));
    assert_true(cn_sum_is_measured(-12.5f, 0, 71)); // a network's own loss
    assert_true(cn_sum_is_measured(NAN, 7, 71));    // the model has diverged
    assert_true(cn_sum_is_measured(INFINITY, 7, 71));
}

static void impossible_sums_over_held_out_samples_do_not(void **state)
{
    static const float odd[][3] = {
        {1, 72, 71},    {1, -1, 71},     {1, NAN, 71},  {1, -1e30f, 71},
        {1, 0, NAN},    {1, 0, -71},     {1, 0, 1e30f}, {1, 1e6f, 71},
        {3e38f, 7, 71}, {-3e38f, 7, 71}, {1, NAN, NAN}, {1, INFINITY, INFINITY},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
        assert_false(cn_sum_is_measured(odd[i][0], odd[i][1], odd[i][2]));
}

static void possible_votes_stay(void **state)
{
    struct cn_step_sums sums = {96, 12.5f, -3};

    (void)state;
    assert_true(cn_sum_bound_step(&sums, 96));
    assert_true(sums.samples == 96 && sums.weight == 12.5f && sums.loss == -3);
    sums.weight = 0; // no label counts
    assert_true(cn_sum_bound_step(&sums, 96));
}

static void impossible_votes_are_replaced(void **state)
{
    static const float samples[] = {NAN, -1, 0, 97, 1e30f, INFINITY, -INFINITY};
    static const float weights[] = {NAN, -1, INFINITY, -INFINITY};
    static const float losses[] = {NAN, INFINITY, 3e38f, -3e38f};
    struct cn_step_sums sums;

    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        sums = (struct cn_step_sums){samples[i], 12, 3};
        assert_false(cn_sum_bound_step(&sums, 96));
        assert_true(sums.samples == 96 && sums.weight == 12 && sums.loss == 3);
    }
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        sums = (struct cn_step_sums){64, weights[i], 3};
        assert_false(cn_sum_bound_step(&sums, 96));
        assert_true(sums.samples == 64 && sums.weight == 64 && sums.loss == 3);
    }
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        sums = (struct cn_step_sums){64, 12, losses[i]};
        assert_false(cn_sum_bound_step(&sums, 96));
        assert_true(sums.samples == 64 && sums.weight == 12 && sums.loss == 0);
    }
}

static void a_number_out_of_range_is_replaced(void **state)
{
    (void)state;
    assert_true(cn_sum_within(0.5, 0, 1, 7) == 0.5);
    assert_true(cn_sum_within(1.5, 0, 1, 7) == 7);
    assert_true(cn_sum_within(-0.5, 0, 1, 7) == 7);
    assert_true(cn_sum_within(NAN, 0, 1, 7) == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(possible_sums_over_held_out_samples_count),
        cmocka_unit_test(impossible_sums_over_held_out_samples_do_not),
        cmocka_unit_test(possible_votes_stay),
        cmocka_unit_test(impossible_votes_are_replaced),
        cmocka_unit_test(a_number_out_of_range_is_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
