// The division of rows among the boards of a trial.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/trial/trial_split.h"

#define ROWS 1000
#define LABELS 10

static int64_t labels[ROWS];
static uint32_t owners[ROWS];

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++)
        labels[i] = (int64_t)(i * 7 % LABELS);
    return 0;
}

static void divide(const struct cn_trial_split *split)
{
    struct cn_diag diag;
    cn_diag_init(&diag);
    cn_trial_hold_out(split->seed, true, ROWS, owners);
    assert_int_equal(cn_trial_divide(split, labels, ROWS, owners, &diag), CN_OK);
}

static size_t count_of(uint32_t owner)
{
    size_t count = 0;
    for (size_t i = 0; i < ROWS; i++)
        count += owners[i] == owner;
    return count;
}

static void each_row_has_one_owner_and_a_tenth_measures(void **state)
{
    (void)state;
    for (int kind = CN_TRIAL_IID; kind <= CN_TRIAL_DIRICHLET; kind++) {
        const struct cn_trial_split split = {.kind = (enum cn_trial_split_kind)kind,
                                             .boards = 6,
                                             .groups = 3,
                                             .alpha = 1,
                                             .seed = 4};
        size_t sum = 0;
        divide(&split);
        assert_int_equal(count_of(CN_TRIAL_CENTRAL), ROWS / 10);
        for (uint32_t i = 0; i < split.boards; i++)
            sum += count_of(i);
        assert_int_equal(sum, ROWS - ROWS / 10);
    }
}

static void iid_gives_all_boards_equal_numbers_of_rows(void **state)
{
    (void)state;
    const struct cn_trial_split split = {.kind = CN_TRIAL_IID, .boards = 9, .groups = 2};
    divide(&split);
    for (uint32_t i = 0; i < split.boards; i++)
        assert_int_equal(count_of(i), 100);
}

static void a_label_belongs_to_one_group_and_each_group_has_one(void **state)
{
    (void)state;
    for (uint32_t groups = 1; groups <= LABELS; groups++) {
        const struct cn_trial_split split = {
            .kind = CN_TRIAL_LABELS, .boards = 11, .groups = groups, .seed = 2};
        uint32_t group_of[LABELS];
        bool has[LABELS] = {false};
        divide(&split);
        for (size_t i = 0; i < LABELS; i++)
            group_of[i] = groups;
        for (size_t i = 0; i < ROWS; i++) {
            if (owners[i] == CN_TRIAL_CENTRAL)
                continue;
            uint32_t group = cn_trial_group(&split, owners[i]);
            assert_true(group_of[labels[i]] == groups || group_of[labels[i]] == group);
            group_of[labels[i]] = group;
            has[group] = true;
        }
        for (uint32_t g = 0; g < groups; g++)
            assert_true(has[g]);
    }
}

// The share of the group that has most of a label, on average over the labels.
static double largest_share(double alpha)
{
    const struct cn_trial_split split = {
        .kind = CN_TRIAL_DIRICHLET, .boards = 4, .groups = 4, .alpha = alpha, .seed = 7};
    double sum = 0;
    divide(&split);
    for (int64_t label = 0; label < LABELS; label++) {
        size_t counts[4] = {0}, all = 0, most = 0;
        for (size_t i = 0; i < ROWS; i++) {
            if (labels[i] != label || owners[i] == CN_TRIAL_CENTRAL)
                continue;
            size_t now = ++counts[cn_trial_group(&split, owners[i])];
            most = now > most ? now : most;
            all++;
        }
        sum += (double)most / (double)all;
    }
    return sum / LABELS;
}

static void a_small_alpha_is_more_unequal_than_a_large_one(void **state)
{
    (void)state;
    double small = largest_share(0.1), large = largest_share(100);
    assert_true(small > 0.6);
    assert_true(large < 0.35);
}

static void the_same_settings_divide_alike_and_another_seed_does_not(void **state)
{
    (void)state;
    static uint32_t first[ROWS];
    struct cn_trial_split split = {
        .kind = CN_TRIAL_DIRICHLET, .boards = 4, .groups = 2, .alpha = 0.5, .seed = 1};
    divide(&split);
    memcpy(first, owners, sizeof(first));
    divide(&split);
    assert_memory_equal(first, owners, sizeof(first));
    split.seed = 2;
    divide(&split);
    assert_memory_not_equal(first, owners, sizeof(first));
}

static void refuse(const struct cn_trial_split *split, size_t rows, const char *words)
{
    struct cn_diag diag;
    cn_diag_init(&diag);
    cn_trial_hold_out(split->seed, false, rows, owners);
    assert_int_equal(cn_trial_divide(split, labels, rows, owners, &diag), CN_EINVAL);
    assert_non_null(strstr(cn_diag_first(&diag), words));
}

static void what_cannot_be_divided_is_said(void **state)
{
    (void)state;
    const struct cn_trial_split many = {.kind = CN_TRIAL_LABELS, .boards = 11, .groups = 11};
    const struct cn_trial_split few = {.kind = CN_TRIAL_IID, .boards = 4, .groups = 2};
    refuse(&many, ROWS, "10 different labels; expected at least one for each of 11 groups");
    refuse(&few, 3, "board-4 of 4 would get no row");
}

static void groups_have_boards_that_follow_each_other(void **state)
{
    (void)state;
    const struct cn_trial_split split = {.boards = 7, .groups = 3};
    assert_int_equal(cn_trial_first_board(&split, 0), 0);
    assert_int_equal(cn_trial_first_board(&split, 1), 2);
    assert_int_equal(cn_trial_first_board(&split, 2), 4);
    assert_int_equal(cn_trial_first_board(&split, 3), 7);
    assert_int_equal(cn_trial_group(&split, 1), 0);
    assert_int_equal(cn_trial_group(&split, 2), 1);
    assert_int_equal(cn_trial_group(&split, 6), 2);
}

static void with_shared_data_the_groups_own_the_rows(void **state)
{
    (void)state;
    struct cn_trial_split split = {.kind = CN_TRIAL_IID, .boards = 6, .groups = 3, .shared = true};
    char name[CN_TRIAL_OWNER_SIZE];
    for (int kind = CN_TRIAL_IID; kind <= CN_TRIAL_DIRICHLET; kind++) {
        size_t sum = 0;
        split.kind = (enum cn_trial_split_kind)kind;
        split.alpha = 100;
        divide(&split);
        for (uint32_t group = 0; group < split.groups; group++) {
            assert_true(count_of(group) > 0);
            sum += count_of(group);
        }
        assert_int_equal(sum, ROWS - ROWS / 10);
    }
    assert_int_equal(cn_trial_owners(&split), 3);
    assert_int_equal(cn_trial_owner(&split, 3), 1);
    cn_trial_owner_name(&split, 1, name);
    assert_string_equal(name, "group-2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_has_one_owner_and_a_tenth_measures),
        cmocka_unit_test(iid_gives_all_boards_equal_numbers_of_rows),
        cmocka_unit_test(a_label_belongs_to_one_group_and_each_group_has_one),
        cmocka_unit_test(a_small_alpha_is_more_unequal_than_a_large_one),
        cmocka_unit_test(the_same_settings_divide_alike_and_another_seed_does_not),
        cmocka_unit_test(what_cannot_be_divided_is_said),
        cmocka_unit_test(groups_have_boards_that_follow_each_other),
        cmocka_unit_test(with_shared_data_the_groups_own_the_rows),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
