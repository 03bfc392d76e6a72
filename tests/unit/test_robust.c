// Robust rules: the exact result for updates that differ, in tiles of any size.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/merge/fold.h"
#include "aggregator/merge/robust.h"
#include "aggregator/merge/robust_rules.h"
#include "tests/support/frame_source.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {{9000, CN_TENSOR_PARAM}, {60, CN_TENSOR_PARAM}};
#define TOTAL 9060
#define MOST 9

static const char *const names[MOST] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};

struct fixture {
    struct cn_layout layout;
    struct cn_buffer frames[MOST];
    struct cn_robust_update updates[MOST];
    size_t count;
    float mean[TOTAL], other[TOTAL], center[TOTAL];
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->layout = cn_test_layout(tensors, 2);
    for (size_t i = 0; i < MOST; i++)
        cn_buffer_init(&f->frames[i], 1 << 20);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < MOST; i++)
        cn_buffer_deinit(&f->frames[i]);
    cn_test_layout_free(&f->layout);
    free(f);
    return 0;
}

static void set_update(struct fixture *f, size_t i, uint64_t weight, const float *values)
{
    const struct cn_update_header header = {.weight = 1, .rule = {.mode = CN_UPDATE_RAW32}};
    struct cn_fold_norms norms;

    f->frames[i].size = 0;
    assert_int_equal(cn_update_encode(&header, &f->layout, values, f->other, &f->frames[i]), CN_OK);
    f->updates[i] = (struct cn_robust_update){
        .group = names[i],
        .source = frame_source(&f->frames[i]),
        .weight = weight,
    };
    assert_int_equal(cn_fold_norms(&f->layout, f->frames[i].data, f->frames[i].size, &norms),
                     CN_OK);
    f->updates[i].norm = norms.trained;
    f->updates[i].statistics_norm = norms.statistics;
}

// Sets the updates to rows that have one value everywhere.
static void set_constants(struct fixture *f, size_t count, const float *constants)
{
    f->count = count;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < TOTAL; k++)
            f->center[k] = constants[i];
        set_update(f, i, 10 * (i + 1), f->center);
    }
}

// Honest updates around one direction; the last `liars` send minus ten times that direction.
static void set_attacked(struct fixture *f, size_t count, size_t liars)
{
    f->count = count;
    for (size_t i = 0; i < count; i++) {
        cn_test_fill(f->mean, TOTAL, 1, 0.01f);
        cn_test_fill(f->center, TOTAL, 100 + i, 0.005f);
        for (size_t k = 0; k < TOTAL; k++)
            f->center[k] = i + liars < count ? f->mean[k] + f->center[k] : -10 * f->mean[k];
        set_update(f, i, 100 + i, f->center);
    }
}

static void merge_tiled(struct fixture *f, enum cn_robust_rule rule, enum cn_robust_mix mix,
                        uint32_t tolerate, size_t tile, float *mean)
{
    const struct cn_robust robust = {.rule = rule, .mix = mix, .tolerate = tolerate};
    const struct cn_robust_config config = {
        .layout = &f->layout, .robust = &robust, .seed = 1, .round = 3, .tile = tile};

    memset(f->center, 0, sizeof(f->center));
    assert_int_equal(cn_robust_mean(&config, f->updates, f->count,
                                    cn_robust_rows_kept(&robust) ? f->center : NULL, mean),
                     CN_OK);
}

static void merge(struct fixture *f, enum cn_robust_rule rule, enum cn_robust_mix mix,
                  uint32_t tolerate)
{
    merge_tiled(f, rule, mix, tolerate, 0, f->mean);
}

static void expect(const struct fixture *f, float value)
{
    for (size_t k = 0; k < TOTAL; k++)
        assert_true(f->mean[k] == value);
}

static void the_median_is_the_middle_or_half_of_two(void **state)
{
    struct fixture *f = *state;

    set_constants(f, 5, (float[]){3, -16, 0.5f, 16, 1});
    merge(f, CN_ROBUST_MEDIAN, CN_ROBUST_MIX_NONE, 2);
    expect(f, 1);
    set_constants(f, 4, (float[]){0.25f, 16, -16, 0.125f});
    merge(f, CN_ROBUST_MEDIAN, CN_ROBUST_MIX_NONE, 1);
    expect(f, 0.1875f);
}

static void the_trimmed_mean_drops_as_many_at_both_ends(void **state)
{
    struct fixture *f = *state;

    set_constants(f, 5, (float[]){3, -16, 0.5f, 16, 1});
    merge(f, CN_ROBUST_TRIMMED, CN_ROBUST_MIX_NONE, 1);
    expect(f, 1.5f);
    assert_true(f->updates[1].factor < 1e-9 && f->updates[3].factor < 1e-9);
    assert_true(f->updates[0].factor > 0.99);
    merge(f, CN_ROBUST_TRIMMED, CN_ROBUST_MIX_NONE, 2);
    expect(f, 1);
}

// A third is not a float: the sum of the middle values is divided once.
static void a_trimmed_mean_is_rounded_once(void **state)
{
    struct fixture *f = *state;

    set_constants(f, 5, (float[]){0, 0, 0, 1, 1});
    merge(f, CN_ROBUST_TRIMMED, CN_ROBUST_MIX_NONE, 1);
    expect(f, 1.0f / 3);
}

static void multi_krum_is_the_weighted_mean_of_those_near_each_other(void **state)
{
    struct fixture *f = *state;

    set_constants(f, 7, (float[]){1, 1, 1, 1, 1, -4, 2});
    merge(f, CN_ROBUST_MULTI_KRUM, CN_ROBUST_MIX_NONE, 1);
    expect(f, (10 + 20 + 30 + 40 + 50 + 2 * 70) / 220.0f);
    assert_true(f->updates[5].factor < 0.5 && f->updates[6].factor > 0.5);
    merge(f, CN_ROBUST_MULTI_KRUM, CN_ROBUST_MIX_NONE, 2);
    expect(f, 1);
}

// With two tolerated of nine a score has five distances: two liars at one place are near each other
// and far from five.
static void two_liars_at_one_place_do_not_look_like_a_majority(void **state)
{
    struct fixture *f = *state;

    set_constants(f, 9, (float[]){0.9f, 1, 1.1f, -3, -3, 1, 1.05f, 0.95f, 1});
    merge(f, CN_ROBUST_MULTI_KRUM, CN_ROBUST_MIX_NONE, 2);
    assert_true(f->updates[3].factor < 0.5 && f->updates[4].factor < 0.5);
    for (size_t i = 5; i < 9; i++)
        assert_true(f->updates[i].factor > 0.5);
}

static void of_equal_scores_the_first_by_name_counts(void **state)
{
    struct fixture *f = *state;

    set_constants(f, 5, (float[]){1, 1, 1, 1, 1});
    merge(f, CN_ROBUST_MULTI_KRUM, CN_ROBUST_MIX_NONE, 1);
    for (size_t i = 0; i < 5; i++)
        assert_true((f->updates[i].factor > 0.5) == (i < 4));
}

static void all_values_at_sixteen_stay_exact(void **state)
{
    struct fixture *f = *state;
    const struct cn_robust_rows_config config = {.layout = &f->layout};
    struct cn_robust_rows *rows;
    cn_robust_number gram[49];
    // A value is 2^31: products are 2^62 each.
    const cn_robust_number product = (cn_robust_number)TOTAL << 62;

    set_constants(f, 7, (float[]){16, -16, 16, 16, -16, 16, 16});
    assert_int_equal(cn_robust_rows_open(&config, f->updates, 7, &rows), CN_OK);
    assert_int_equal(cn_robust_pairs_multiply(rows, 7, gram), CN_OK);
    cn_robust_rows_close(rows);
    assert_true(gram[0] == product && gram[1] == -product && gram[2] == product);
    cn_robust_pairs_distances(gram, 7);
    assert_true(gram[0] == 0 && gram[1] == 4 * product && gram[2] == 0);
    for (int rule = CN_ROBUST_MEDIAN; rule <= CN_ROBUST_CCLIP; rule++)
        for (int mix = CN_ROBUST_MIX_NONE; mix <= CN_ROBUST_MIX_NEAREST; mix++) {
            merge(f, (enum cn_robust_rule)rule, (enum cn_robust_mix)mix, 2);
            for (size_t k = 0; k < TOTAL; k++)
                assert_true(f->mean[k] >= -16 && f->mean[k] <= 16);
        }
    merge(f, CN_ROBUST_MULTI_KRUM, CN_ROBUST_MIX_NONE, 2);
    expect(f, 16);
    merge(f, CN_ROBUST_MEDIAN, CN_ROBUST_MIX_NEAREST, 2);
    expect(f, 16);
}

static void any_tile_gives_the_same_bits(void **state)
{
    struct fixture *f = *state;
    static float whole[TOTAL], center[TOTAL];

    set_attacked(f, 8, 2);
    for (int rule = CN_ROBUST_MEDIAN; rule <= CN_ROBUST_CCLIP; rule++)
        for (int mix = CN_ROBUST_MIX_NONE; mix <= CN_ROBUST_MIX_NEAREST; mix++) {
            merge_tiled(f, (enum cn_robust_rule)rule, (enum cn_robust_mix)mix, 2, TOTAL, whole);
            memcpy(center, f->center, sizeof(center));
            merge_tiled(f, (enum cn_robust_rule)rule, (enum cn_robust_mix)mix, 2, 37, f->mean);
            assert_memory_equal(f->mean, whole, sizeof(whole));
            assert_memory_equal(f->center, center, sizeof(center));
        }
}

static double distance(const float *a, const float *b)
{
    double sum = 0;

    for (size_t k = 0; k < TOTAL; k++)
        sum += ((double)a[k] - (double)b[k]) * ((double)a[k] - (double)b[k]);
    return sqrt(sum);
}

// The direction that honest updates share has the norm 0.95; the plain mean of six honest ones and
// two liars is far on the other side.
static void liars_move_every_rule_less_than_the_mean(void **state)
{
    struct fixture *f = *state;
    static float truth[TOTAL];

    set_attacked(f, 8, 2);
    cn_test_fill(truth, TOTAL, 1, 0.01f);
    for (int rule = CN_ROBUST_MEDIAN; rule <= CN_ROBUST_CCLIP; rule++)
        for (int mix = CN_ROBUST_MIX_NONE; mix <= CN_ROBUST_MIX_NEAREST; mix += 2) {
            merge(f, (enum cn_robust_rule)rule, (enum cn_robust_mix)mix, 2);
            assert_true(distance(f->mean, truth) < 0.8);
            for (size_t i = 6; i < 8; i++)
                assert_true(f->updates[i].factor < CN_ROBUST_REFUSED);
            for (size_t i = 0; i < 6; i++)
                assert_true(f->updates[i].factor >= CN_ROBUST_REFUSED);
        }
}

// With f = 0 for too few rows every rule is a mean of all.
static void fewer_updates_than_needed_tolerate_fewer(void **state)
{
    struct fixture *f = *state;

    set_constants(f, 4, (float[]){1, 1, 1, 3});
    f->updates[3].weight = 60;
    merge(f, CN_ROBUST_MULTI_KRUM, CN_ROBUST_MIX_NONE, 2);
    expect(f, 2);
    merge(f, CN_ROBUST_TRIMMED, CN_ROBUST_MIX_NONE, 2);
    expect(f, 1);
    f->count = 1;
    for (int rule = CN_ROBUST_MEDIAN; rule <= CN_ROBUST_RFA; rule++)
        for (int mix = CN_ROBUST_MIX_NONE; mix <= CN_ROBUST_MIX_NEAREST; mix++) {
            merge(f, (enum cn_robust_rule)rule, (enum cn_robust_mix)mix, 2);
            expect(f, 1);
        }
}

static void norms_above_the_limit_are_scaled_as_the_fold_scales_them(void **state)
{
    struct fixture *f = *state;
    const struct cn_robust robust = {.rule = CN_ROBUST_MULTI_KRUM, .tolerate = 1};
    struct cn_robust_config config = {.layout = &f->layout, .robust = &robust};
    struct cn_fold_caps caps = {0};
    struct cn_fold *fold;

    set_attacked(f, 4, 0); // too few for one to be left out: a weighted mean
    config.norm_max = caps.norm_max = f->updates[1].norm - 12345;
    assert_int_equal(cn_robust_mean(&config, f->updates, 4, NULL, f->mean), CN_OK);
    assert_int_equal(cn_fold_open(&f->layout, &caps, &fold), CN_OK);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            cn_fold_add(fold, f->frames[i].data, f->frames[i].size, f->updates[i].weight, NULL),
            CN_OK);
    assert_int_equal(cn_fold_finish(fold, f->other), CN_OK);
    cn_fold_close(fold);
    assert_memory_equal(f->mean, f->other, sizeof(f->mean));
}

// No update takes more from a variance than there is, in any tile; the fold has the same limit.
static void variances_are_limited_as_the_fold_limits_them(void **state)
{
    struct fixture *f = *state;
    const struct cn_robust robust = {.rule = CN_ROBUST_MULTI_KRUM, .tolerate = 1};
    static float base[TOTAL];
    struct cn_robust_config config = {
        .layout = &f->layout, .robust = &robust, .base = base, .tile = 1000};
    const struct cn_fold_caps caps = {.base = base};
    struct cn_fold *fold;

    f->layout.tensors[1].variance = true;
    for (size_t i = 0; i < TOTAL; i++)
        base[i] = (float)(i % 7) * 1e-3f;
    set_attacked(f, 4, 0);
    assert_int_equal(cn_robust_mean(&config, f->updates, 4, NULL, f->mean), CN_OK);
    assert_int_equal(cn_fold_open(&f->layout, &caps, &fold), CN_OK);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            cn_fold_add(fold, f->frames[i].data, f->frames[i].size, f->updates[i].weight, NULL),
            CN_OK);
    assert_int_equal(cn_fold_finish(fold, f->other), CN_OK);
    cn_fold_close(fold);
    assert_memory_equal(f->mean, f->other, sizeof(f->mean));
    f->layout.tensors[1].variance = false;
}

// The center is the result of the round before, coordinate by coordinate, whatever the tile.
static void the_center_follows_the_result(void **state)
{
    struct fixture *f = *state;
    const struct cn_robust robust = {.rule = CN_ROBUST_CCLIP, .tolerate = 1};
    struct cn_robust_config config = {.layout = &f->layout, .robust = &robust};
    static float whole[TOTAL], other[TOTAL];

    set_attacked(f, 5, 1);
    cn_test_fill(f->center, TOTAL, 9, 1); // far away, so that the result is near it
    assert_int_equal(cn_robust_mean(&config, f->updates, 5, f->center, whole), CN_OK);
    assert_memory_equal(f->center, whole, sizeof(whole));
    cn_test_fill(f->center, TOTAL, 9, 1);
    config.tile = 101;
    assert_int_equal(cn_robust_mean(&config, f->updates, 5, f->center, other), CN_OK);
    assert_memory_equal(other, whole, sizeof(whole));
    merge(f, CN_ROBUST_CCLIP, CN_ROBUST_MIX_NONE, 1); // from zeros
    assert_memory_not_equal(f->mean, whole, sizeof(whole));
}

static void a_damaged_update_is_an_error(void **state)
{
    struct fixture *f = *state;
    const struct cn_robust robust = {.rule = CN_ROBUST_MEDIAN, .tolerate = 1};
    const struct cn_robust_config config = {.layout = &f->layout, .robust = &robust};

    set_attacked(f, 3, 1);
    f->frames[1].data[f->frames[1].size / 2] ^= 1;
    assert_int_equal(cn_robust_mean(&config, f->updates, 3, NULL, f->mean), CN_EDIGEST);
    f->updates[1].source.size = 40;
    assert_int_equal(cn_robust_mean(&config, f->updates, 3, NULL, f->mean), CN_EFORMAT);
}

// "c" lies with its weights, and the statistics of "e" are unlike the others'.
static void distances_are_those_of_what_is_trained(void **state)
{
    struct fixture *f = *state;
    const struct cn_robust robust = {.rule = CN_ROBUST_MULTI_KRUM, .tolerate = 1};
    struct cn_robust_config config = {.layout = &f->layout, .robust = &robust};

    f->layout.tensors[1].class = CN_TENSOR_STAT;
    f->count = 5;
    for (size_t i = 0; i < 5; i++) {
        cn_test_fill(f->center, TOTAL, i, 0.001f);
        for (size_t k = 0; k < TOTAL; k++)
            f->center[k] += k >= 9000 && i == 4 ? 8 : k < 9000 && i == 2 ? 0.1f : 0;
        set_update(f, i, 100, f->center);
    }
    assert_int_equal(cn_robust_mean(&config, f->updates, 5, NULL, f->mean), CN_OK);
    for (size_t i = 0; i < 5; i++)
        assert_true((f->updates[i].factor > 0.5) == (i != 2));
    config.together = true; // as an older program
    assert_int_equal(cn_robust_mean(&config, f->updates, 5, NULL, f->mean), CN_OK);
    for (size_t i = 0; i < 5; i++)
        assert_true((f->updates[i].factor > 0.5) == (i != 4));
}

static void statistics_are_scaled_as_the_fold_scales_them(void **state)
{
    struct fixture *f = *state;
    const struct cn_robust robust = {.rule = CN_ROBUST_MULTI_KRUM, .tolerate = 1};
    struct cn_robust_config config = {.layout = &f->layout, .robust = &robust, .tile = 8990};
    struct cn_fold_caps caps = {0};
    struct cn_fold *fold;

    f->layout.tensors[1].class = CN_TENSOR_STAT;
    set_attacked(f, 4, 0);
    config.norm_max = caps.norm_max = f->updates[1].norm - 12345;
    config.statistics_max = caps.statistics_max = f->updates[0].statistics_norm / 2;
    f->updates[3].statistics_out = true;
    assert_int_equal(cn_robust_mean(&config, f->updates, 4, NULL, f->mean), CN_OK);
    assert_int_equal(cn_fold_open(&f->layout, &caps, &fold), CN_OK);
    for (size_t i = 0; i < 4; i++) {
        const struct cn_fold_share share = {.weight = f->updates[i].weight,
                                            .trained = f->updates[i].weight,
                                            .statistics_out = i == 3};

        assert_int_equal(
            cn_fold_add_share(fold, f->frames[i].data, f->frames[i].size, &share, NULL), CN_OK);
    }
    assert_int_equal(cn_fold_finish(fold, f->other), CN_OK);
    cn_fold_close(fold);
    assert_memory_equal(f->mean, f->other, sizeof(f->mean));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_middle_or_half_of_two),
        cmocka_unit_test(the_trimmed_mean_drops_as_many_at_both_ends),
        cmocka_unit_test(a_trimmed_mean_is_rounded_once),
        cmocka_unit_test(multi_krum_is_the_weighted_mean_of_those_near_each_other),
        cmocka_unit_test(two_liars_at_one_place_do_not_look_like_a_majority),
        cmocka_unit_test(of_equal_scores_the_first_by_name_counts),
        cmocka_unit_test(all_values_at_sixteen_stay_exact),
        cmocka_unit_test(any_tile_gives_the_same_bits),
        cmocka_unit_test(liars_move_every_rule_less_than_the_mean),
        cmocka_unit_test(fewer_updates_than_needed_tolerate_fewer),
        cmocka_unit_test(norms_above_the_limit_are_scaled_as_the_fold_scales_them),
        cmocka_unit_test(distances_are_those_of_what_is_trained),
        cmocka_unit_test(statistics_are_scaled_as_the_fold_scales_them),
        cmocka_unit_test(variances_are_limited_as_the_fold_limits_them),
        cmocka_unit_test(the_center_follows_the_result),
        cmocka_unit_test(a_damaged_update_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
