// FedNova: what steps are worth, and that groups with the same steps give the plain mean.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/merge/admission.h"
#include "aggregator/merge/fold.h"
#include "aggregator/merge/normalize.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {{3000, CN_TENSOR_PARAM}, {40, CN_TENSOR_STAT}};
#define TOTAL 3040
#define GROUPS 3

static void steps_with_momentum_are_worth_more(void **state)
{
    static const struct {
        uint64_t steps;
        double distance;
    } cases[] = {{1, 1}, {2, 2.9}, {5, 13.1441}, {20, 120.941899}, {100, 910.002390}};
    struct cn_job job = {.momentum = 0.9};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_true(fabs(cn_normalize_distance(&job, cases[i].steps) - cases[i].distance) < 1e-6);
    job.rules.nesterov = true; // the second step: 1.9 + (1 + 0.9 * 1.9)
    assert_true(fabs(cn_normalize_distance(&job, 2) - 4.61) < 1e-12);
}

static void a_proximal_pull_makes_steps_worth_less(void **state)
{
    struct cn_job job = {.learning_rate = 0.1, .rules.proximal = 0.5};

    (void)state;
    // (1 - (1 - 0.05)^10) / 0.05
    assert_true(fabs(cn_normalize_distance(&job, 10) - 8.025261215) < 1e-8);
    job.momentum = 0;
    job.rules.proximal = 0;
    assert_true(cn_normalize_distance(&job, 10) == 10);
    job.rules.proximal = 1e6; // such a job diverges; its steps still have a length
    assert_true(cn_normalize_distance(&job, 1000) >= 1);
}

static void steps_that_are_unknown_are_not_compared(void **state)
{
    struct cn_job job = {.server.normalize = CN_NORMALIZE_STEPS};
    struct cn_caps_entry entries[] = {{.steps = 5}, {.steps = 0}};

    (void)state;
    assert_true(cn_normalize_holds(&job, entries, 1));
    assert_false(cn_normalize_holds(&job, entries, 2));
    job.server.normalize = CN_NORMALIZE_OFF;
    assert_false(cn_normalize_holds(&job, entries, 1));
}

static void add(struct cn_fold *fold, const struct cn_layout *layout, uint64_t seed,
                const struct cn_caps_entry *entry, bool normalized)
{
    struct cn_update_header header = {.weight = 1, .rule = {.mode = CN_UPDATE_RAW32}};
    float values[TOTAL], decoded[TOTAL];
    struct cn_buffer frame;

    cn_buffer_init(&frame, (size_t)1 << 20);
    cn_test_fill(values, TOTAL, seed, 0.1f);
    assert_int_equal(cn_update_encode(&header, layout, values, decoded, &frame), CN_OK);
    const struct cn_fold_share share = {.weight = entry->weight * CN_NORMALIZE_UNIT,
                                        .trained = entry->trained};

    assert_int_equal(normalized ? cn_fold_add_share(fold, frame.data, frame.size, &share, NULL)
                                : cn_fold_add(fold, frame.data, frame.size, entry->weight, NULL),
                     CN_OK);
    cn_buffer_deinit(&frame);
}

static void take_mean(const struct cn_job *job, struct cn_caps_entry *entries, bool normalized,
                      float *mean)
{
    static const struct cn_fold_caps caps = {.max_norm = 3};
    struct cn_layout layout = cn_test_layout(tensors, 2);
    struct cn_fold *fold;
    float factor = 1;

    if (normalized)
        cn_normalize_find(job, entries, GROUPS, 0, NULL, &factor);
    assert_int_equal(cn_fold_open(&layout, &caps, &fold), CN_OK);
    for (size_t i = 0; i < GROUPS; i++)
        if (!entries[i].left_out)
            add(fold, &layout, i, &entries[i], normalized);
    assert_int_equal(cn_fold_finish(fold, mean), CN_OK);
    if (normalized)
        cn_normalize_scale(&layout, factor, mean);
    cn_fold_close(fold);
    cn_test_layout_free(&layout);
}

static void the_same_steps_give_the_plain_mean_to_the_bit(void **state)
{
    const struct cn_job job = {.momentum = 0.9};
    struct cn_caps_entry entries[GROUPS] = {
        {.weight = 320, .steps = 20}, {.weight = 37, .steps = 20}, {.weight = 911, .steps = 20}};
    float mean[TOTAL], plain[TOTAL];

    (void)state;
    take_mean(&job, entries, false, plain);
    take_mean(&job, entries, true, mean);
    assert_memory_equal(mean, plain, sizeof(mean));
}

// In exact numbers: sum(p * A) * sum(p * update / A), and the plain mean of statistics.
static void each_group_counts_by_its_direction(void **state)
{
    const struct cn_job job = {.momentum = 0.5};
    struct cn_caps_entry entries[GROUPS] = {{.weight = 300, .steps = 40},
                                            {.weight = 100, .steps = 5},
                                            {.weight = 9999, .steps = 1, .left_out = true}};
    double a0 = cn_normalize_distance(&job, 40), a1 = cn_normalize_distance(&job, 5);
    double far = 0.75 * a0 + 0.25 * a1;
    float mean[TOTAL], update[2][TOTAL];
    double norms[2] = {0, 0};

    (void)state;
    take_mean(&job, entries, true, mean);
    for (size_t i = 0; i < 2; i++) {
        cn_test_fill(update[i], TOTAL, i, 0.1f);
        for (size_t j = 0; j < 3000; j++)
            norms[i] += (double)update[i][j] * (double)update[i][j];
        for (size_t j = 0; j < 3000; j++) // limits.max_norm holds before
            update[i][j] *= (float)(3 / sqrt(norms[i]));
    }
    for (size_t j = 0; j < TOTAL; j++) {
        double v0 = (double)update[0][j], v1 = (double)update[1][j];
        double wanted = j < 3000 ? far * (0.75 * v0 / a0 + 0.25 * v1 / a1) : 0.75 * v0 + 0.25 * v1;

        assert_true(fabs((double)mean[j] - wanted) < 1e-4 * (fabs(wanted) + 0.05));
    }
}

static void huge_weights_fit_the_sum(void **state)
{
    const struct cn_job job = {0};
    struct cn_caps_entry entries[GROUPS] = {{.weight = 1u << 31, .steps = 1},
                                            {.weight = 1u << 31, .steps = 1000000},
                                            {.weight = 1, .steps = 1}};
    float mean[TOTAL];

    (void)state;
    take_mean(&job, entries, true, mean);
    assert_int_equal(entries[0].weight, (1u << 23) / 3);
    assert_int_equal(entries[2].trained, 256);
    assert_true(entries[1].trained >= 1);
}

// Returns how far entry i moves the version, in the units of its norm, as a share of all weights.
static double moved_by(const struct cn_caps_entry *entry, uint64_t norm_max, float factor)
{
    uint64_t norm = norm_max && entry->norm > norm_max ? norm_max : entry->norm;

    return (double)entry->trained / CN_NORMALIZE_UNIT * (double)norm * (double)factor;
}

// Three honest groups trained for 100 steps. The liar says anything the job allows, 1 to 1000, with
// an update as large as theirs.
static void a_group_that_lies_about_its_steps_moves_no_more_than_others(void **state)
{
    static const uint64_t says[] = {1, 5, 99, 101, 1000};
    const struct cn_job job = {.momentum = 0.9};

    (void)state;
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++) {
        struct cn_caps_entry entries[] = {{.weight = 320, .steps = 100, .norm = 1u << 27},
                                          {.weight = 320, .steps = says[i], .norm = 1u << 27},
                                          {.weight = 320, .steps = 100, .norm = 1u << 27},
                                          {.weight = 320, .steps = 100, .norm = 1u << 27}};
        double scratch[4], honest = 320.0 * (1u << 27);
        float factor;

        cn_normalize_find(&job, entries, 4, 0, scratch, &factor);
        assert_true(moved_by(&entries[1], 0, factor) <= 1.4 * honest);
        assert_true(moved_by(&entries[0], 0, factor) <= 1.4 * honest);
        assert_true(moved_by(&entries[0], 0, factor) >= 0.7 * honest);
    }
}

// The caps of a round do not change what equal steps give, also with an update that is left out.
static void the_same_steps_are_not_limited_again(void **state)
{
    const struct cn_job job = {.momentum = 0.9};
    struct cn_caps_entry entries[] = {
        {.weight = 320, .steps = 20, .norm = 1000003},
        {.weight = 37, .steps = 20, .norm = 777777},
        {.weight = 11, .steps = 20, .norm = 1u << 30, .left_out = true},
        {.weight = 911, .steps = 20, .norm = 1249999}};
    double scratch[4];
    float factor;

    (void)state;
    cn_normalize_find(&job, entries, 4, 1000003 + 1000003 / 4, scratch, &factor);
    assert_true(factor == 1);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(entries[i].trained, entries[i].weight * CN_NORMALIZE_UNIT);
}

static void steps_that_the_job_does_not_have_are_refused(void **state)
{
    static const struct {
        uint64_t steps;
        bool taken;
    } cases[] = {{0, false},  {1, false},   {19, false},        {20, true},
                 {100, true}, {101, false}, {UINT64_MAX, false}};
    struct cn_job job = {
        .local_steps = 20, .local_steps_most = 100, .server.normalize = CN_NORMALIZE_STEPS};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_spooled upload = {.declared.steps = cases[i].steps};
        struct cn_diag diag;

        cn_diag_init(&diag);
        assert_int_equal(cn_admission_check_steps(&job, &upload, &diag),
                         cases[i].taken ? CN_OK : CN_ERANGE);
        assert_int_equal(diag.count, cases[i].taken ? 0 : 1);
        if (!cases[i].taken)
            assert_non_null(strstr(cn_diag_first(&diag), "steps, expected 20 to 100"));
        job.server.normalize = CN_NORMALIZE_OFF;
        assert_int_equal(cn_admission_check_steps(&job, &upload, &diag), CN_OK);
        job.correction.kind = CN_CORRECTION_SCAFFOLD;
        assert_int_equal(cn_admission_check_steps(&job, &upload, &diag),
                         cases[i].taken ? CN_OK : CN_ERANGE);
        job.correction.kind = CN_CORRECTION_NONE;
        job.server.normalize = CN_NORMALIZE_STEPS;
    }
    job.local_steps_most = 0;
    assert_int_equal(
        cn_admission_check_steps(&job, &(struct cn_spooled){.declared.steps = 20}, NULL), CN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_with_momentum_are_worth_more),
        cmocka_unit_test(a_proximal_pull_makes_steps_worth_less),
        cmocka_unit_test(steps_that_are_unknown_are_not_compared),
        cmocka_unit_test(the_same_steps_give_the_plain_mean_to_the_bit),
        cmocka_unit_test(each_group_counts_by_its_direction),
        cmocka_unit_test(huge_weights_fit_the_sum),
        cmocka_unit_test(a_group_that_lies_about_its_steps_moves_no_more_than_others),
        cmocka_unit_test(the_same_steps_are_not_limited_again),
        cmocka_unit_test(steps_that_the_job_does_not_have_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
