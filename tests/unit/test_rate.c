// The size of updates, and the length of rounds, follow from the rate of the link.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/update/rate.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {
    {200000, CN_TENSOR_PARAM}, {300, CN_TENSOR_PARAM}, {64, CN_TENSOR_STAT}};
#define TOTAL 200364

struct fixture {
    struct cn_layout layout;
    float *values, *decoded;
    struct cn_rate_spectrum spectrum;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->layout = cn_test_layout(tensors, 3);
    f->values = calloc(TOTAL, sizeof(float));
    f->decoded = calloc(TOTAL, sizeof(float));
    cn_test_fill_tailed(f->values, TOTAL, 5, 0.02f);
    cn_rate_measure(&f->layout, f->values, &f->spectrum);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    cn_test_layout_free(&f->layout);
    free(f->values);
    free(f->decoded);
    free(f);
    return 0;
}

// Encodes by the rule. Returns the bytes and the share of the energy that was kept.
static size_t encode(struct fixture *f, const struct cn_update_rule *rule, double *kept)
{
    const struct cn_update_header header = {
        .round = 1, .weight = 1, .rule = *rule, .small_signs = f->layout.tensors[1].signs};
    double energy = 0;
    double lost = 0;
    struct cn_buffer frame;
    size_t size;

    cn_buffer_init(&frame, cn_update_size_max(&f->layout));
    assert_int_equal(cn_update_encode(&header, &f->layout, f->values, f->decoded, &frame), CN_OK);
    for (size_t i = 0; i < TOTAL; i++) {
        double error = (double)f->values[i] - (double)f->decoded[i];

        energy += (double)f->values[i] * (double)f->values[i];
        lost += error * error;
    }
    *kept = 1 - lost / energy;
    size = frame.size;
    cn_buffer_deinit(&frame);
    return size;
}

static void what_a_rule_costs_and_keeps_is_foreseen(void **state)
{
    static const struct cn_update_rule rules[] = {
        {.mode = CN_UPDATE_RAW32},
        {.mode = CN_UPDATE_BF16},
        {.mode = CN_UPDATE_Q8},
        {.mode = CN_UPDATE_Q4},
        {.mode = CN_UPDATE_SIGN},
        {.mode = CN_UPDATE_TOPK, .density = 0.2, .value_bits = 3},
        {.mode = CN_UPDATE_TOPK, .density = 0.05, .value_bits = 2},
        {.mode = CN_UPDATE_TOPK, .density = 0.01, .value_bits = 0},
        {.mode = CN_UPDATE_TOPK, .density = 0.001, .value_bits = 2},
        {.mode = CN_UPDATE_SKIP},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct cn_rate_choice judged;
        double kept;
        double size = (double)encode(f, &rules[i], &kept);

        cn_rate_judge(&f->spectrum, &rules[i], &judged);
        if (fabs((double)judged.bytes - size) > 0.06 * size + 64)
            fail_msg("rule %zu: %g bytes, expected %llu", i, size,
                     (unsigned long long)judged.bytes);
        if (fabs(judged.quality - kept) > 0.06)
            fail_msg("rule %zu keeps %g, expected %g", i, kept, judged.quality);
    }
}

static void small_tensors_as_signs_are_foreseen(void **state)
{
    static const struct cn_update_rule rules[] = {
        {.mode = CN_UPDATE_Q8},
        {.mode = CN_UPDATE_SIGN},
        {.mode = CN_UPDATE_TOPK, .density = 0.001, .value_bits = 0},
    };
    static const size_t saved[] = {0, 300 - 38, 300 - 38}; // 7 bits less of each of 300 elements
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct cn_rate_choice dense, signs;
        double kept;
        size_t size = encode(f, &rules[i], &kept);

        cn_rate_judge(&f->spectrum, &rules[i], &dense);
        f->layout.tensors[1].signs = true;
        assert_int_equal(size - encode(f, &rules[i], &kept), saved[i]);
        cn_rate_measure(&f->layout, f->values, &f->spectrum);
        cn_rate_judge(&f->spectrum, &rules[i], &signs);
        assert_true(fabs((double)(dense.bytes - signs.bytes) - (double)saved[i]) < 3);
        f->layout.tensors[1].signs = false;
        cn_rate_measure(&f->layout, f->values, &f->spectrum);
    }
}

static void tensors_with_densities_and_priorities_are_foreseen(void **state)
{
    static const struct cn_test_tensor three[] = {
        {120000, CN_TENSOR_PARAM}, {40000, CN_TENSOR_PARAM}, {40364, CN_TENSOR_PARAM}};
    static const struct cn_update_rule rules[] = {{CN_UPDATE_TOPK, 0.05, 2},
                                                  {CN_UPDATE_TOPK, 0.005, 0}};
    struct fixture *f = *state;

    cn_test_layout_free(&f->layout);
    f->layout = cn_test_layout(three, 3);
    f->layout.tensors[1].density = 0.2;
    f->layout.tensors[2].priority = 2;
    cn_rate_measure(&f->layout, f->values, &f->spectrum);
    for (size_t i = 0; i < 2; i++) {
        struct cn_rate_choice judged, choice;
        double kept;
        double size = (double)encode(f, &rules[i], &kept);

        cn_rate_judge(&f->spectrum, &rules[i], &judged);
        // Where a priority drives the densities of tensors apart, gaps take fewer bits than one
        // density for all would.
        if (size > 1.06 * (double)judged.bytes || size < 0.85 * (double)judged.bytes)
            fail_msg("rule %zu: %g bytes, expected %llu", i, size,
                     (unsigned long long)judged.bytes);
        cn_rate_choose(&f->spectrum, (uint64_t)size, &choice);
        assert_true(choice.bytes <= (uint64_t)size && choice.quality > 0.1);
    }
}

static void a_choice_fits_its_budget_and_more_bytes_are_never_worse(void **state)
{
    struct fixture *f = *state;
    double before = -1;

    for (uint64_t budget = 64; budget < 2000000; budget = budget * 5 / 4) {
        struct cn_rate_choice choice;
        double kept;

        cn_rate_choose(&f->spectrum, budget, &choice);
        assert_true(choice.quality >= before - 0.011);
        before = choice.quality;
        if (choice.rule.mode == CN_UPDATE_SKIP)
            continue;
        assert_true(choice.bytes <= budget);
        assert_true((double)encode(f, &choice.rule, &kept) <= 1.08 * (double)budget);
    }
    assert_true(before > 0.98);
}

static void nothing_is_sent_when_next_to_nothing_would_fit(void **state)
{
    struct fixture *f = *state;
    struct cn_rate_choice choice;

    cn_rate_choose(&f->spectrum, 500, &choice);
    assert_int_equal(choice.rule.mode, CN_UPDATE_SKIP);
    cn_rate_choose(&f->spectrum, 4000, &choice);
    assert_int_equal(choice.rule.mode, CN_UPDATE_TOPK);
}

static const struct cn_rate_situation usual = {
    .link = {.up_bps = 80000, .up_deviation_bps = 5000, .rtt_us = 200000},
    .remaining_s = 60,
    .step_s = 0.1,
    .steps = 20,
    .steps_most = 20,
    .bytes_most = UINT64_MAX,
    .factor = 1,
};

static void the_budget_is_what_arrives_before_the_deadline(void **state)
{
    struct cn_rate_situation situation = usual;

    (void)state;
    // (51 - 2 - 0.4) s at 70 kbit/s.
    assert_true(llabs((long long)cn_rate_budget(&situation) - 425250) <= 1);
    situation.link.up_deviation_bps = 50000; // a quarter is counted on
    assert_true(llabs((long long)cn_rate_budget(&situation) - 121500) <= 1);
    situation.factor = 0.5;
    assert_true(llabs((long long)cn_rate_budget(&situation) - 60750) <= 1);
    situation.bytes_most = 1000;
    assert_int_equal(cn_rate_budget(&situation), 1000);
    situation.remaining_s = 2;
    assert_int_equal(cn_rate_budget(&situation), 0);
}

static void a_late_update_halves_and_three_early_ones_raise(void **state)
{
    struct cn_rate_guard guard = {0};

    (void)state;
    cn_rate_guard_add(&guard, -1);
    assert_true(guard.factor == 0.5);
    for (int i = 0; i < 3; i++)
        cn_rate_guard_add(&guard, 0.5);
    assert_true(guard.factor == 0.625);
    cn_rate_guard_add(&guard, 0.5);
    cn_rate_guard_add(&guard, 0.1); // just in time
    cn_rate_guard_add(&guard, 0.5);
    cn_rate_guard_add(&guard, 0.5);
    assert_true(guard.factor == 0.625);
    for (int i = 0; i < 100; i++)
        cn_rate_guard_add(&guard, -1);
    assert_true(guard.factor > 0);
    for (int i = 0; i < 100; i++)
        cn_rate_guard_add(&guard, 0.9);
    assert_true(guard.factor <= 2);
}

static void a_slow_link_makes_rounds_longer(void **state)
{
    struct fixture *f = *state;
    struct cn_rate_situation situation = usual;
    struct cn_rate_choice choice;

    cn_rate_plan(&f->spectrum, &situation, &choice);
    assert_int_equal(choice.steps, 20);
    situation.steps_most = 1000;
    cn_rate_plan(&f->spectrum, &situation, &choice);
    assert_in_range(choice.steps, 100, 510);
    situation.link.up_bps = 1e9;
    cn_rate_plan(&f->spectrum, &situation, &choice);
    assert_int_equal(choice.steps, 20);
}

static void a_guess_is_made_of_as_many_elements_as_the_model_has(void **state)
{
    struct fixture *f = *state;
    struct cn_rate_spectrum guess;
    uint64_t sum;

    cn_rate_guess(&f->layout, &guess);
    sum = guess.zeros;
    for (size_t i = 0; i < CN_RATE_BINS; i++)
        sum += guess.counts[i];
    assert_int_equal(sum, 200000);
    assert_int_equal(guess.total, 200000);
    assert_int_equal(guess.others, 364);
    assert_true(guess.zeros < 1000);
}

static void a_change_of_zeros_needs_no_update(void **state)
{
    struct fixture *f = *state;
    struct cn_rate_choice choice;

    memset(f->values, 0, TOTAL * sizeof(float));
    cn_rate_measure(&f->layout, f->values, &f->spectrum);
    cn_rate_choose(&f->spectrum, 1u << 20, &choice);
    assert_true(choice.bytes < 20000 && !isnan(choice.quality));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_a_rule_costs_and_keeps_is_foreseen),
        TEST(tensors_with_densities_and_priorities_are_foreseen),
        TEST(small_tensors_as_signs_are_foreseen),
        TEST(a_choice_fits_its_budget_and_more_bytes_are_never_worse),
        TEST(nothing_is_sent_when_next_to_nothing_would_fit),
        TEST(the_budget_is_what_arrives_before_the_deadline),
        TEST(a_late_update_halves_and_three_early_ones_raise),
        TEST(a_slow_link_makes_rounds_longer),
        TEST(a_guess_is_made_of_as_many_elements_as_the_model_has),
        TEST(a_change_of_zeros_needs_no_update),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
