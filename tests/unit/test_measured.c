// Measurements that groups report: which group stands out, and how many samples count.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/run/measured.h"
#include "aggregator/run/score.h"
#include "aggregator/serve/status_groups.h"
#include "tests/unit/aggregator_world.h"

static size_t count_outliers(struct cn_measured_entry *entries, size_t count)
{
    double scratch[8];
    struct cn_measured_median median;
    size_t found = 0;

    cn_measured_find(entries, count, scratch, &median);
    for (size_t i = 0; i < count; i++)
        found += entries[i].stands_out;
    return found;
}

static void a_group_that_says_all_is_right_stands_out(void **state)
{
    struct cn_measured_entry entries[] = {
        {2.3, 0.1, false}, {2.2, 0.15, false}, {0, 1, false}, {2.4, 0.05, false}};

    (void)state;
    assert_int_equal(count_outliers(entries, 4), 1);
    assert_true(entries[2].stands_out);
    assert_int_equal(count_outliers(entries + 1, 3), 1);
    assert_int_equal(count_outliers(entries + 1, 2), 0); // no majority
}

static void a_loss_far_above_stands_out(void **state)
{
    struct cn_measured_entry entries[] = {
        {0.2, 0.9, false}, {0.25, 0.9, false}, {0.3, 0.88, false}, {900, 0.9, false}};

    (void)state;
    assert_int_equal(count_outliers(entries, 4), 1);
    assert_true(entries[3].stands_out);
}

static void negative_losses_are_compared_by_their_magnitude(void **state)
{
    struct cn_measured_entry entries[] = {
        {-2.3, 0, false}, {-1.2, 0, false}, {-2.4, 0, false}, {-2.8, 0, false}};

    (void)state;
    assert_int_equal(count_outliers(entries, 4), 0);
    entries[1].loss = 9;
    assert_int_equal(count_outliers(entries, 4), 1);
    assert_true(entries[1].stands_out);
}

static void groups_with_data_of_their_own_do_not_stand_out(void **state)
{
    struct cn_measured_entry entries[] = {
        {0.2, 0.95, false}, {0.9, 0.7, false}, {0.5, 0.85, false}, {1.2, 0.55, false}};

    (void)state;
    assert_int_equal(count_outliers(entries, 4), 0);
}

static int open_world(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));

    world_init(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    *state = world;
    return 0;
}

static struct cn_ledger_contribution measured(uint32_t round, const char *group, uint64_t count)
{
    struct cn_ledger_contribution made = {.round = round,
                                          .size = 10,
                                          .weight = 3,
                                          .boards = 1,
                                          .held_out_loss = (double)count,
                                          .held_out_correct = count / 2,
                                          .held_out_count = count};

    snprintf(made.group, sizeof(made.group), "%s", group);
    snprintf(made.board, sizeof(made.board), "%s", group);
    memset(made.digest, group[0], sizeof(made.digest));
    return made;
}

static void add_version(struct aggregator_world *world, uint32_t number)
{
    struct cn_ledger_version version = {.number = number};

    memset(version.digest, 7, sizeof(version.digest));
    version.digest[0] = (uint8_t)number;
    if (number)
        assert_int_equal(cn_ledger_close_round(world->ledger, number), CN_OK);
    assert_int_equal(cn_ledger_add_version(world->ledger, &version), CN_OK);
}

static void samples_are_bounded_by_the_first_time_and_by_the_enrolment(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_roster_group group = {.boards = 1};
    struct cn_ledger_contribution first = measured(1, "g", 40), later = measured(2, "g", 1000);

    assert_int_equal(cn_measured_bound(world->ledger, &group, &first), CN_OK);
    assert_int_equal(first.held_out_count, 40);
    add_version(world, 0);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_accept(world->ledger, &first), CN_OK);
    assert_int_equal(cn_measured_bound(world->ledger, &group, &later), CN_OK);
    assert_int_equal(later.held_out_count, 40);
    assert_int_equal(later.held_out_correct, 20);
    assert_true(later.held_out_loss == 40);
    later = measured(2, "g", 1000);
    later.boards = 8; // seven more boards came
    assert_int_equal(cn_measured_bound(world->ledger, &group, &later), CN_OK);
    assert_int_equal(later.held_out_count, 320);
    group.max_weight = 10;
    assert_int_equal(cn_measured_bound(world->ledger, &group, &later), CN_OK);
    assert_int_equal(later.held_out_count, 10);
}

static void accept(struct aggregator_world *world, uint32_t round, const char *group,
                   uint64_t correct)
{
    struct cn_ledger_contribution made = measured(round, group, 100);

    made.held_out_correct = correct;
    made.digest[1] = (uint8_t)round;
    assert_int_equal(cn_ledger_select(world->ledger, round, group), CN_OK);
    assert_int_equal(cn_ledger_accept(world->ledger, &made), CN_OK);
}

static void expect_best(struct aggregator_world *world, struct cn_run_progress *progress,
                        uint32_t version, bool known)
{
    assert_int_equal(cn_score_progress(world->ledger, &world->job, 0, progress), CN_OK);
    assert_int_equal(progress->best_score.known, known);
    assert_int_equal(progress->best, version);
}

static void one_group_of_several_does_not_choose_the_best_version(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_run_progress progress = {0}, trusting = {0};

    world->job.loss = CN_LOSS_CROSS_ENTROPY;
    add_version(world, 0);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    accept(world, 1, "evil", 100);
    expect_best(world, &progress, 0, true); // the run has no other group yet
    add_version(world, 1);
    assert_int_equal(cn_ledger_open_round(world->ledger, 2), CN_OK);
    accept(world, 2, "good", 40);
    expect_best(world, &progress, 0, false);
    assert_true(progress.candidate_score.known); // it stays kept
    accept(world, 2, "evil", 100);
    expect_best(world, &progress, 1, true);
    assert_true(progress.best_score.accuracy == 0.4); // the worse of two
    world->job.trust_boards = true;
    expect_best(world, &trusting, 0, true);
}

static void keep_text(void *context, const char *group, const char *text)
{
    assert_string_equal(group, "x");
    snprintf(context, CN_MEASURED_TEXT, "%s", text);
}

// What `status --json` says of the groups, of which round 1 was merged last.
static void expect_groups(struct aggregator_world *world, const char *words)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    assert_int_equal(cn_status_print_groups(world->ledger, 1, false, true, stream), CN_OK);
    fclose(stream);
    if (!strstr(text, words))
        fail_msg("'%s' is not in:\n%s", words, text);
    free(text);
}

static void a_forged_count_of_samples_does_not_own_the_measures(void **state)
{
    static const char *const groups[] = {"a", "b", "c", "x"};
    struct aggregator_world *world = *state;
    struct cn_ledger_version version;
    char text[CN_MEASURED_TEXT] = "";

    add_version(world, 0);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    for (size_t i = 0; i < 4; i++) {
        struct cn_ledger_contribution made = measured(1, groups[i], 100);

        made.measures.f1 = 0.5;
        if (i == 3) {
            made.held_out_count = made.held_out_correct = 1ull << 40;
            made.held_out_loss = 0;
            made.measures.f1 = 1;
        }
        assert_int_equal(cn_ledger_accept(world->ledger, &made), CN_OK);
    }
    assert_int_equal(cn_ledger_find_version(world->ledger, 0, &version), CN_OK);
    assert_true(version.boards.measures.f1 > 0.62 && version.boards.measures.f1 < 0.63);
    assert_int_equal(cn_measured_outliers(world->ledger, 1, keep_text, text), CN_OK);
    assert_string_equal(text, "group x says version 0 has loss 0 and accuracy 1, the median of 4 "
                              "groups is 1 and 0.5");
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(world_enroll(world, groups[i], groups[i], 0), CN_OK);
    expect_groups(world, "{\"group\":\"c\",\"accepted\":0,\"late\":0,\"rejected\":0}\n");
    expect_groups(world, "\"rejected\":0,\"outlier\":\"group x says version 0 has loss 0 and ");
}

// With asynchronous rounds the updates of a version began from several versions.
static void a_group_that_stands_out_is_named_with_the_version_it_measured(void **state)
{
    static const char *const groups[] = {"a", "b", "c", "x"};
    struct aggregator_world *world = *state;
    char text[CN_MEASURED_TEXT] = "";

    add_version(world, 0);
    for (uint32_t round = 1; round <= 3; round++)
        assert_int_equal(cn_ledger_open_round(world->ledger, round), CN_OK);
    for (size_t i = 0; i < 4; i++) {
        struct cn_ledger_contribution made = measured(i == 3 ? 2 : 3, groups[i], 100);

        made.version = 3;
        if (i == 3)
            made.held_out_loss = 90000;
        assert_int_equal(cn_ledger_accept(world->ledger, &made), CN_OK);
    }
    assert_int_equal(cn_measured_outliers(world->ledger, 3, keep_text, text), CN_OK);
    assert_string_equal(text, "group x says version 1 has loss 900 and accuracy 0.5, the median "
                              "of 4 groups is 1 and 0.5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_that_says_all_is_right_stands_out),
        cmocka_unit_test(a_loss_far_above_stands_out),
        cmocka_unit_test(negative_losses_are_compared_by_their_magnitude),
        cmocka_unit_test(groups_with_data_of_their_own_do_not_stand_out),
        cmocka_unit_test_setup_teardown(samples_are_bounded_by_the_first_time_and_by_the_enrolment,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(one_group_of_several_does_not_choose_the_best_version,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_forged_count_of_samples_does_not_own_the_measures,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(
            a_group_that_stands_out_is_named_with_the_version_it_measured, open_world, world_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
