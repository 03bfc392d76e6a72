// How much one group may move a version, by the medians of its round.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/merge/caps.h"

#define FOUR 4
#define UPDATE(samples, from, size)                                                                \
    {                                                                                              \
        .weight = (samples), .boards = (from), .norm = (size)                                      \
    }

static struct cn_caps_result find(struct cn_caps_entry *entries, size_t count)
{
    static uint64_t scratch[16];
    struct cn_caps_result result;

    cn_caps_find(entries, count, false, scratch, &result);
    return result;
}

static void a_forged_sample_count_counts_as_the_median(void **state)
{
    struct cn_caps_entry entries[FOUR] = {UPDATE(1920, 1, 100), UPDATE(1920, 1, 110),
                                          UPDATE(1u << 31, 1, 105), UPDATE(1800, 1, 90)};

    (void)state;
    assert_int_equal(find(entries, FOUR).board_weight, 1920);
    assert_int_equal(entries[2].weight, 1920);
    assert_int_equal(entries[3].weight, 1800);
}

static void a_group_of_eight_beside_single_boards_is_not_capped(void **state)
{
    struct cn_caps_entry entries[FOUR] = {UPDATE(640, 1, 100), UPDATE(640, 1, 100),
                                          UPDATE(5120, 8, 100), UPDATE(640, 1, 100)};

    (void)state;
    find(entries, FOUR);
    assert_int_equal(entries[2].weight, 5120);
    for (size_t i = 0; i < FOUR; i++)
        assert_false(entries[i].left_out);
}

static void an_update_that_stands_far_above_all_others_is_left_out(void **state)
{
    struct cn_caps_entry entries[FOUR] = {UPDATE(1, 1, 1000), UPDATE(1, 1, 1200), UPDATE(1, 1, 900),
                                          UPDATE(1, 1, 2101)};
    struct cn_caps_result result;

    (void)state;
    result = find(entries, FOUR);
    assert_int_equal(result.trained.median, 1000);
    assert_int_equal(result.trained.max, 1250);
    assert_true(entries[3].left_out);
    entries[3].norm = 2100; // 7/4 of the next
    find(entries, FOUR);
    assert_false(entries[3].left_out);
}

// Two of four are no outliers: which two would lie?
static void at_most_a_quarter_is_left_out(void **state)
{
    struct cn_caps_entry entries[FOUR] = {UPDATE(1, 1, 100), UPDATE(1, 1, 100), UPDATE(1, 1, 9000),
                                          UPDATE(1, 1, 9000)};

    (void)state;
    assert_int_equal(find(entries, FOUR).trained.max, 125);
    assert_false(entries[2].left_out || entries[3].left_out);
}

// Groups whose link had no time send zeros. They say nothing of how large an update is.
static void zeros_are_not_compared_with(void **state)
{
    struct cn_caps_entry entries[FOUR] = {UPDATE(1, 1, 0), UPDATE(1, 1, 0), UPDATE(1, 1, 9000),
                                          UPDATE(1, 1, 0)};

    (void)state;
    assert_int_equal(find(entries, FOUR).trained.max, 9000 + 2250);
    assert_false(entries[2].left_out);
}

// A group whose board had no bytes left for an update takes no limit away from the others.
static void of_two_that_move_the_lesser_limits_the_other(void **state)
{
    struct cn_caps_entry entries[3] = {UPDATE(1, 1, 1000), UPDATE(1, 1, 0), UPDATE(1, 1, 11000)};
    struct cn_caps_result result;
    uint64_t scratch[3];

    (void)state;
    assert_int_equal(find(entries, 3).trained.max, 1250);
    assert_false(entries[2].left_out);
    cn_caps_find(entries, 3, true, scratch, &result); // as an older program
    assert_int_equal(result.trained.max, 0);
}

// A liar that sends no statistics has a norm as small as the others' statistics are large.
static void statistics_do_not_hide_what_is_trained(void **state)
{
    struct cn_caps_entry entries[FOUR] = {UPDATE(1, 1, 800), UPDATE(1, 1, 900), UPDATE(1, 1, 700),
                                          UPDATE(1, 1, 11000)};
    struct cn_caps_result result;

    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        entries[i].statistics_norm = 9800 + i;
    result = find(entries, FOUR);
    assert_int_equal(result.trained.max, 800 + 200);
    assert_int_equal(result.statistics.median, 9801);
    assert_true(entries[3].left_out);
    assert_false(entries[3].statistics_out);
}

static void statistics_far_above_all_others_are_left_out_alone(void **state)
{
    struct cn_caps_entry entries[FOUR] = {UPDATE(1, 1, 800), UPDATE(1, 1, 900), UPDATE(1, 1, 700),
                                          UPDATE(1, 1, 800)};

    (void)state;
    for (uint64_t i = 0; i < FOUR; i++)
        entries[i].statistics_norm = i == 2 ? 30000 : 10000;
    assert_int_equal(find(entries, FOUR).statistics.max, 12500);
    for (int i = 0; i < FOUR; i++) {
        assert_false(entries[i].left_out);
        assert_int_equal(entries[i].statistics_out, i == 2);
    }
}

static void two_groups_are_no_majority(void **state)
{
    struct cn_caps_entry entries[2] = {UPDATE(1, 1, 1), UPDATE(1000, 1, 1000)};

    (void)state;
    assert_int_equal(find(entries, 2).trained.max, 0);
    assert_int_equal(entries[1].weight, 1000);
    assert_false(entries[1].left_out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forged_sample_count_counts_as_the_median),
        cmocka_unit_test(a_group_of_eight_beside_single_boards_is_not_capped),
        cmocka_unit_test(an_update_that_stands_far_above_all_others_is_left_out),
        cmocka_unit_test(at_most_a_quarter_is_left_out),
        cmocka_unit_test(zeros_are_not_compared_with),
        cmocka_unit_test(of_two_that_move_the_lesser_limits_the_other),
        cmocka_unit_test(statistics_do_not_hide_what_is_trained),
        cmocka_unit_test(statistics_far_above_all_others_are_left_out_alone),
        cmocka_unit_test(two_groups_are_no_majority),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
