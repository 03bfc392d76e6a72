// The fold: the same mean to the bit in any order, and never part of an update.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/merge/fold.h"
#include "runtime/base/random.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {
    {5000, CN_TENSOR_PARAM}, {30, CN_TENSOR_PARAM}, {30, CN_TENSOR_STAT}};
#define TOTAL 5060
#define FRAMES 5

static const uint64_t weights[FRAMES] = {1, 640, 3, 2000000000, 77};

struct fixture {
    struct cn_layout layout;
    struct cn_buffer frames[FRAMES];
    float values[FRAMES][TOTAL]; // as decoded
    float mean[TOTAL];
    struct cn_fold *fold;
};

static void make_frame(struct fixture *f, size_t n, enum cn_update_mode mode, const float *values)
{
    struct cn_update_header header = {.weight = weights[n],
                                      .rule = {.mode = mode, .density = 0.05, .value_bits = 2}};

    f->frames[n].size = 0;
    assert_int_equal(cn_update_encode(&header, &f->layout, values, f->values[n], &f->frames[n]),
                     CN_OK);
}

static int set_up(void **state)
{
    static const struct cn_fold_caps caps = {0};
    struct fixture *f = calloc(1, sizeof(*f));

    f->layout = cn_test_layout(tensors, 3);
    for (size_t n = 0; n < FRAMES; n++) {
        float values[TOTAL];

        cn_buffer_init(&f->frames[n], 1 << 20);
        cn_test_fill_tailed(values, TOTAL, n, 1);
        make_frame(f, n, (enum cn_update_mode)(n % 3), values);
    }
    assert_int_equal(cn_fold_open(&f->layout, &caps, &f->fold), CN_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    cn_fold_close(f->fold);
    for (size_t n = 0; n < FRAMES; n++)
        cn_buffer_deinit(&f->frames[n]);
    cn_test_layout_free(&f->layout);
    free(f);
    return 0;
}

static cn_err add(struct fixture *f, size_t n, uint64_t weight)
{
    return cn_fold_add(f->fold, f->frames[n].data, f->frames[n].size, weight, NULL);
}

static void reopen(struct fixture *f, uint64_t max_weight, double max_norm)
{
    struct cn_fold_caps caps = {.max_weight = max_weight, .max_norm = max_norm};

    cn_fold_close(f->fold);
    assert_int_equal(cn_fold_open(&f->layout, &caps, &f->fold), CN_OK);
}

static void the_order_of_arrival_does_not_matter(void **state)
{
    struct fixture *f = *state;
    float first[TOTAL];

    for (uint64_t key = 0; key < 6; key++) {
        reopen(f, 0, key % 2 ? 3.0 : 0);
        for (uint64_t i = 0; i < FRAMES; i++) {
            size_t n = (size_t)cn_random_permute(key / 2, FRAMES, i);

            assert_int_equal(add(f, n, weights[n]), CN_OK);
        }
        assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
        if (key < 1)
            memcpy(first, f->mean, sizeof(first));
        if (key % 2 == 0)
            assert_memory_equal(f->mean, first, sizeof(first));
    }
}

static void the_mean_is_that_of_exact_arithmetic(void **state)
{
    struct fixture *f = *state;
    long double sum_of_weights = 0;

    for (size_t n = 0; n < FRAMES; n++) {
        assert_int_equal(add(f, n, weights[n]), CN_OK);
        sum_of_weights += (long double)weights[n];
    }
    assert_int_equal(cn_fold_weight(f->fold), (uint64_t)sum_of_weights);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    for (size_t i = 0; i < TOTAL; i++) {
        long double sum = 0;

        // Exact: fix has 32 bits and a sum of weights 31, of the 64 there are.
        for (size_t n = 0; n < FRAMES; n++)
            sum +=
                (long double)weights[n] * (long double)llrint(ldexp((double)f->values[n][i], 27));
        assert_true(f->mean[i] == (float)(sum / sum_of_weights / 134217728.0L));
    }
}

static void one_update_is_its_own_mean(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(add(f, 0, CN_UPDATE_WEIGHT_MAX), CN_OK);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    for (size_t i = 0; i < TOTAL; i++)
        assert_true(fabsf(f->mean[i] - f->values[0][i]) <= 0x1p-28f);
}

static void the_largest_sums_there_can_be_do_not_overflow(void **state)
{
    struct fixture *f = *state;
    float values[TOTAL];

    for (size_t i = 0; i < TOTAL; i++)
        values[i] = i % 2 ? 16 : -16;
    make_frame(f, 0, CN_UPDATE_RAW32, values);
    for (int i = 0; i < 2; i++)
        assert_int_equal(add(f, 0, CN_UPDATE_WEIGHT_MAX / 2), CN_OK);
    assert_int_equal(add(f, 0, 1), CN_ERANGE);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    assert_memory_equal(f->mean, values, sizeof(values));
}

static void an_update_that_fails_changes_nothing(void **state)
{
    struct fixture *f = *state;
    float before[TOTAL];

    assert_int_equal(add(f, 2, 10), CN_OK);
    assert_int_equal(cn_fold_finish(f->fold, before), CN_OK);
    f->frames[3].data[f->frames[3].size - 40] ^= 1;
    assert_int_not_equal(add(f, 3, 10), CN_OK);
    // Wherever it fails, in the digest at last, what was added until then is taken back.
    f->frames[3].data[f->frames[3].size - 40] ^= 1;
    for (size_t i = 0; i < f->frames[3].size; i += 97) {
        uint8_t *byte = &f->frames[3].data[f->frames[3].size - 1 - i];

        *byte ^= 1;
        assert_int_not_equal(add(f, 3, 10), CN_OK);
        *byte ^= 1;
    }
    assert_int_equal(add(f, 1, 0), CN_ERANGE);
    assert_int_equal(add(f, 1, CN_UPDATE_WEIGHT_MAX), CN_ERANGE);
    assert_int_equal(add(f, 1, UINT64_MAX), CN_ERANGE);
    assert_int_equal(cn_fold_weight(f->fold), 10);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    assert_memory_equal(f->mean, before, sizeof(before));
}

static void a_weight_above_the_cap_counts_as_the_cap(void **state)
{
    struct fixture *f = *state;

    reopen(f, 500, 0);
    assert_int_equal(add(f, 3, weights[3]), CN_OK);
    assert_int_equal(cn_fold_weight(f->fold), 500);
    assert_int_equal(add(f, 2, weights[2]), CN_OK);
    assert_int_equal(cn_fold_weight(f->fold), 503);
}

#define TRAINED 5030

static double norm_of(const float *values, size_t first, size_t end)
{
    double sum = 0;

    for (size_t i = first; i < end; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

static double norm(const float *values)
{
    return norm_of(values, 0, TRAINED);
}

static void a_norm_above_the_cap_is_scaled_down_to_it(void **state)
{
    struct fixture *f = *state;
    double before = norm(f->values[0]);

    assert_true(before > 2);
    reopen(f, 0, 2);
    assert_int_equal(add(f, 0, 3), CN_OK);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    assert_true(fabs(cn_fold_cut(f->fold) - before) < before * 1e-6);
    assert_true(norm(f->mean) <= 2 * (1 + 1e-6) && norm(f->mean) > 2 * (1 - 1e-5));
    for (size_t i = 0; i < TRAINED; i++)
        assert_true(fabs((double)f->mean[i] - (double)f->values[0][i] * 2 / before) < 2e-8 + 1e-6);
    for (size_t i = TRAINED; i < TOTAL; i++)
        assert_true(fabsf(f->mean[i] - f->values[0][i]) < 2e-8f);
}

static void open_with(struct fixture *f, const struct cn_fold_caps *caps)
{
    cn_fold_close(f->fold);
    assert_int_equal(cn_fold_open(&f->layout, caps, &f->fold), CN_OK);
}

static void statistics_have_a_limit_of_their_own(void **state)
{
    struct fixture *f = *state;
    double before = norm_of(f->values[0], TRAINED, TOTAL);
    const struct cn_fold_caps caps = {.max_norm = norm(f->values[0]) + 1,
                                      .statistics_max = (uint64_t)(before / 3 * (1 << 27))};
    const struct cn_fold_share out = {.weight = 3, .trained = 3, .statistics_out = true};

    open_with(f, &caps);
    assert_int_equal(add(f, 0, 3), CN_OK);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    assert_true(cn_fold_cut(f->fold) <= 0);
    for (size_t i = 0; i < TOTAL; i++)
        assert_true(fabsf(f->mean[i] - f->values[0][i] / (i < TRAINED ? 1 : 3)) < 2e-6f);
    open_with(f, &caps);
    assert_int_equal(cn_fold_add_share(f->fold, f->frames[0].data, f->frames[0].size, &out, NULL),
                     CN_OK);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    for (size_t i = 0; i < TOTAL; i++)
        assert_true(fabsf(f->mean[i] - (i < TRAINED ? f->values[0][i] : 0)) < 2e-8f);
}

static void an_older_round_has_one_norm_of_all_values(void **state)
{
    struct fixture *f = *state;
    double before = norm_of(f->values[0], 0, TOTAL);
    const struct cn_fold_caps caps = {.max_norm = 2, .together = true};

    open_with(f, &caps);
    assert_int_equal(add(f, 0, 3), CN_OK);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    assert_true(fabs(cn_fold_cut(f->fold) - before) < before * 1e-6);
    for (size_t i = 0; i < TOTAL; i++)
        assert_true(fabs((double)f->mean[i] - (double)f->values[0][i] * 2 / before) < 2e-8 + 1e-6);
}

static void a_norm_below_the_cap_is_left_alone(void **state)
{
    struct fixture *f = *state;
    float before[TOTAL];

    assert_int_equal(add(f, 0, 3), CN_OK);
    assert_int_equal(cn_fold_finish(f->fold, before), CN_OK);
    reopen(f, 0, norm(f->values[0]) * 1.0001);
    assert_int_equal(add(f, 0, 3), CN_OK);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    assert_memory_equal(f->mean, before, sizeof(before));
}

static void a_variance_loses_no_more_than_it_has(void **state)
{
    static const struct cn_fold_caps all[] = {{0}, {.statistics_max = 12ull << 27}};
    struct fixture *f = *state;
    struct cn_fold_caps caps;
    float base[TOTAL], values[TOTAL] = {0};

    f->layout.tensors[2].variance = true;
    for (size_t i = 0; i < 30; i++) {
        values[5030 + i] = -3;
        base[5030 + i] = 0.3f * (float)i; // 0 to 8.7
    }
    for (size_t i = 0; i < 5030; i++)
        base[i] = NAN; // not looked at
    make_frame(f, 0, CN_UPDATE_RAW32, values);
    memset(values, 0, sizeof(values));
    make_frame(f, 1, CN_UPDATE_RAW32, values);
    for (size_t c = 0; c < 2; c++) { // the norm of frame 0 is 16.4
        float taken = c ? -3 * 12 / sqrtf(30 * 9) : -3;

        caps = all[c];
        caps.base = base;
        cn_fold_close(f->fold);
        assert_int_equal(cn_fold_open(&f->layout, &caps, &f->fold), CN_OK);
        f->frames[0].data[f->frames[0].size - 1] ^= 1;
        assert_int_not_equal(add(f, 0, 1), CN_OK); // what was added is taken back
        f->frames[0].data[f->frames[0].size - 1] ^= 1;
        assert_int_equal(add(f, 0, 1), CN_OK);
        assert_int_equal(add(f, 1, 3), CN_OK);
        assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
        for (size_t i = 0; i < 30; i++) {
            float had = base[5030 + i], mean = f->mean[5030 + i];

            assert_true(had + 4 * mean >= 0);
            assert_true(fabsf(4 * mean - (-had > taken ? -had : taken)) < 1e-6f);
        }
    }
}

static void a_variance_below_zero_is_made_good(void **state)
{
    struct fixture *f = *state;
    struct cn_fold_caps caps = {0};
    float base[TOTAL], values[TOTAL] = {0};

    f->layout.tensors[2].variance = true;
    for (size_t i = 0; i < TOTAL; i++)
        base[i] = -0.25f;
    caps.base = base;
    make_frame(f, 0, CN_UPDATE_RAW32, values);
    cn_fold_close(f->fold);
    assert_int_equal(cn_fold_open(&f->layout, &caps, &f->fold), CN_OK);
    assert_int_equal(add(f, 0, 1), CN_OK);
    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_OK);
    for (size_t i = 0; i < TOTAL; i++)
        assert_true(f->mean[i] == (i < 5030 ? 0 : 0.25f));
}

static void an_empty_fold_has_no_mean(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(cn_fold_finish(f->fold, f->mean), CN_ENOTFOUND);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_order_of_arrival_does_not_matter),
        TEST(the_mean_is_that_of_exact_arithmetic),
        TEST(one_update_is_its_own_mean),
        TEST(the_largest_sums_there_can_be_do_not_overflow),
        TEST(an_update_that_fails_changes_nothing),
        TEST(a_weight_above_the_cap_counts_as_the_cap),
        TEST(a_norm_above_the_cap_is_scaled_down_to_it),
        TEST(statistics_have_a_limit_of_their_own),
        TEST(an_older_round_has_one_norm_of_all_values),
        TEST(a_norm_below_the_cap_is_left_alone),
        TEST(a_variance_loses_no_more_than_it_has),
        TEST(a_variance_below_zero_is_made_good),
        TEST(an_empty_fold_has_no_mean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
