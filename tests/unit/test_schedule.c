// Learning rates, corrections and patterns of names.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/words.h"
#include "runtime/engine/trainer/schedule.h"

static void the_cosine_falls_from_the_rate_to_its_share(void **state)
{
    const struct cn_rules rules = {.schedule = CN_SCHEDULE_COSINE, .factor = 0.1};

    (void)state;
    for (uint64_t step = 0; step <= 100; step++) {
        double wanted = 0.5 * (0.1 + 0.9 * (1 + cos(3.14159265358979 * (double)step / 100)) / 2);

        assert_true(fabs((double)cn_schedule_rate(&rules, 0.5, 100, step) - wanted) < 1e-7);
    }
    assert_true(fabs((double)cn_schedule_rate(&rules, 0.5, 100, 1000) - 0.05) < 1e-7);
}

static void steps_multiply_and_warm_up_rises(void **state)
{
    const struct cn_rules rules = {
        .schedule = CN_SCHEDULE_STEP, .every = 10, .factor = 0.5, .warm_up = 4};

    (void)state;
    assert_true(cn_schedule_rate(&rules, 1, 100, 0) == 0.25f);
    assert_true(cn_schedule_rate(&rules, 1, 100, 3) == 1);
    assert_true(cn_schedule_rate(&rules, 1, 100, 9) == 1);
    assert_true(cn_schedule_rate(&rules, 1, 100, 10) == 0.5f);
    assert_true(cn_schedule_rate(&rules, 1, 100, 29) == 0.25f);
}

static void corrections_are_the_same_after_a_restart(void **state)
{
    const struct cn_rules rules = {.beta1 = 0.8};
    struct cn_schedule_powers on = {0}, again = {0};
    float a[2], b[2];

    (void)state;
    for (uint64_t step = 1; step < 500; step++)
        cn_schedule_powers_set(&rules, step, &on);
    cn_schedule_powers_set(&rules, 499, &again);
    cn_schedule_corrections(&on, &a[0], &a[1]);
    cn_schedule_corrections(&again, &b[0], &b[1]);
    assert_memory_equal(a, b, sizeof(a));
    assert_true(fabs((double)b[1] - sqrt(1 - pow(0.999, 499))) < 1e-5);
}

static void patterns_match_whole_names(void **state)
{
    (void)state;
    assert_true(cn_words_match("conv1.* fc.bias", "conv1.weight"));
    assert_true(cn_words_match("conv1.* fc.bias", "fc.bias"));
    assert_true(cn_words_match("*bias", "layers.0.bias"));
    assert_true(cn_words_match("a*b*c", "aXbYbc"));
    assert_false(cn_words_match("conv1.* fc.bias", "fc.bias.more"));
    assert_false(cn_words_match("", "fc"));
    assert_int_equal(cn_words_count(" a  b "), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cosine_falls_from_the_rate_to_its_share),
        cmocka_unit_test(steps_multiply_and_warm_up_rises),
        cmocka_unit_test(corrections_are_the_same_after_a_restart),
        cmocka_unit_test(patterns_match_whole_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
