#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include <math.h>

#include "aggregator/ledger/ledger_sql.h"
#include "tests/unit/aggregator_world.h"

static int open_world(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    world_init(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    *state = world;
    return 0;
}

static struct cn_ledger_contribution contribution(const char *group, uint8_t digest)
{
    struct cn_ledger_contribution made = {.round = 1, .size = 10, .weight = 3};
    snprintf(made.group, sizeof(made.group), "%s", group);
    snprintf(made.board, sizeof(made.board), "%s", group);
    memset(made.digest, digest, sizeof(made.digest));
    return made;
}

static void a_board_is_enrolled_once(void **state)
{
    struct aggregator_world *world = *state;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(world_enroll(world, "a", "h", 0), CN_EEXIST);
}

static void a_group_that_its_boards_left_is_still_known(void **state)
{
    struct aggregator_world *world = *state;
    bool had;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(cn_ledger_move(world->ledger, "a", "h"), CN_OK);
    assert_int_equal(cn_ledger_had_group(world->ledger, "g", &had), CN_OK);
    assert_true(had);
    assert_int_equal(cn_ledger_had_group(world->ledger, "h", &had), CN_OK);
    assert_true(had);
    assert_int_equal(cn_ledger_had_group(world->ledger, "i", &had), CN_OK);
    assert_false(had);
}

static struct cn_ledger_version version_zero(void)
{
    struct cn_ledger_version made = {.number = 0};
    memset(made.digest, 7, sizeof(made.digest));
    return made;
}

// Means over samples: of the groups, or of the central set.
static void measures_of_a_version_are_means_over_the_samples(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_version version = version_zero();
    struct cn_ledger_contribution first = contribution("g", 1), second = contribution("h", 2);
    const struct cn_ledger_metrics central = {
        .loss = 10, .correct = 9, .count = 10, .measures = {.top5 = 1, .f1 = 0.75}};
    first.held_out_count = 30;
    first.measures = (struct cn_measures){.f1 = 0.5, .mae = 4};
    second.held_out_count = 10;
    second.measures = (struct cn_measures){.f1 = 0.9, .mae = 8};
    assert_int_equal(cn_ledger_add_version(world->ledger, &version), CN_OK);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_find_version(world->ledger, 0, &version), CN_OK);
    assert_true(version.boards.measures.f1 == 0 && version.central.measures.f1 == 0);
    assert_int_equal(cn_ledger_accept(world->ledger, &first), CN_OK);
    assert_int_equal(cn_ledger_accept(world->ledger, &second), CN_OK);
    assert_int_equal(cn_ledger_set_central(world->ledger, 0, &central), CN_OK);
    assert_int_equal(cn_ledger_find_version(world->ledger, 0, &version), CN_OK);
    assert_true(version.boards.measures.f1 > 0.599 && version.boards.measures.f1 < 0.601);
    assert_true(version.boards.measures.mae > 4.99 && version.boards.measures.mae < 5.01);
    assert_true(version.central.measures.f1 == 0.75 && version.central.measures.top5 == 1);
    assert_true(version.central.count == 10 && version.central.measures.mae == 0);
}

static void another_measurement_leaves_nothing_of_the_first(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_version version = version_zero();
    struct cn_ledger_metrics central = {.loss = 10, .count = 10, .measures = {.f1 = 0.75}};
    assert_int_equal(cn_ledger_add_version(world->ledger, &version), CN_OK);
    assert_int_equal(cn_ledger_set_central(world->ledger, 0, &central), CN_OK);
    central.measures = (struct cn_measures){0}; // no row was right
    assert_int_equal(cn_ledger_set_central(world->ledger, 0, &central), CN_OK);
    assert_int_equal(cn_ledger_find_version(world->ledger, 0, &version), CN_OK);
    assert_int_equal(version.central.count, 10);
    assert_true(version.central.measures.f1 == 0);
}

static void an_updates_measures_stand_beside_its_loss(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_version version = version_zero(), later = {.number = 1, .digest = {8}};
    struct cn_ledger_contribution late = contribution("g", 1);
    late.version = 2; // an asynchronous round: trained from version 0, counts in version 2
    late.held_out_count = 30;
    late.held_out_loss = 60;
    late.measures.f1 = 0.5;
    assert_int_equal(cn_ledger_add_version(world->ledger, &version), CN_OK);
    assert_int_equal(cn_ledger_add_version(world->ledger, &later), CN_OK);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_open_round(world->ledger, 2), CN_OK);
    assert_int_equal(cn_ledger_accept(world->ledger, &late), CN_OK);
    assert_int_equal(cn_ledger_find_version(world->ledger, 0, &version), CN_OK);
    assert_true(version.boards.count == 0 && version.boards.measures.f1 == 0);
    assert_int_equal(cn_ledger_find_version(world->ledger, 1, &version), CN_OK);
    assert_true(version.boards.count > 0 && version.boards.measures.f1 == 0.5);
}

// One that says it was right in 2^40 samples was the whole mean.
static void what_boards_measure_is_the_worse_middle_group(void **state)
{
    static const struct {
        const char *group;
        uint64_t correct, count;
        double loss; // sum
    } said[] = {
        {"a", 1ull << 40, 1ull << 40, 0}, {"b", 60, 100, 90}, {"c", 70, 100, 80}, {"d", 5, 10, 20}};
    struct aggregator_world *world = *state;
    struct cn_ledger_version version = version_zero();

    assert_int_equal(cn_ledger_add_version(world->ledger, &version), CN_OK);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    for (size_t i = 0; i < 4; i++) {
        struct cn_ledger_contribution made = contribution(said[i].group, (uint8_t)i);
        made.held_out_correct = said[i].correct;
        made.held_out_count = said[i].count;
        made.held_out_loss = said[i].loss;
        assert_int_equal(cn_ledger_accept(world->ledger, &made), CN_OK);
    }
    assert_int_equal(cn_ledger_find_version(world->ledger, 0, &version), CN_OK);
    assert_int_equal(version.boards.count, CN_LEDGER_MEDIAN);
    assert_int_equal(version.boards.correct, 600000);                        // of 0.5 0.6 0.7 1
    assert_true(fabs(version.boards.loss / CN_LEDGER_MEDIAN - 0.9) < 1e-12); // of 0 0.8 0.9 2
}

static void a_revoked_board_may_come_back_with_a_new_group(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_board found;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(cn_ledger_revoke(world->ledger, "a"), CN_OK);
    assert_int_equal(cn_ledger_revoke(world->ledger, "nobody"), CN_ENOTFOUND);
    assert_int_equal(world_enroll(world, "a", "h", 5), CN_OK);
    assert_int_equal(cn_ledger_find_board(world->ledger, "a", &found), CN_OK);
    assert_string_equal(found.group, "h");
    assert_int_equal(found.max_weight, 5);
    assert_false(found.revoked);
}

static uint64_t key_epoch(struct aggregator_world *world, const char *group)
{
    uint64_t found = 99;
    assert_int_equal(cn_ledger_key_epoch(world->ledger, group, &found), CN_OK);
    return found;
}

static void a_board_that_leaves_or_returns_raises_the_key_epoch_of_its_group(void **state)
{
    struct aggregator_world *world = *state;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "g", 0), CN_OK);
    assert_int_equal(world_enroll(world, "c", "h", 0), CN_OK);
    assert_int_equal(key_epoch(world, "g"), 0);
    assert_int_equal(cn_ledger_revoke(world->ledger, "a"), CN_OK);
    assert_int_equal(key_epoch(world, "g"), 1);
    assert_int_equal(cn_ledger_revoke(world->ledger, "a"), CN_OK); // as often as one likes
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(key_epoch(world, "g"), 3);
    assert_int_equal(key_epoch(world, "h"), 0);
    assert_int_equal(cn_ledger_revoke(world->ledger, "a"), CN_OK);
    assert_int_equal(world_enroll(world, "a", "h", 0), CN_OK);
    assert_int_equal(key_epoch(world, "g"), 5);
    assert_int_equal(key_epoch(world, "h"), 1);
}

static void a_ledger_of_the_schema_before_is_brought_up_with_all_it_has(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_board found;
    assert_int_equal(world_enroll(world, "a", "g", 7), CN_OK);
    assert_int_equal(cn_ledger_sql_run(world->ledger,
                                       "DROP INDEX contribution_version; ALTER TABLE contribution "
                                       "DROP COLUMN version; DROP TABLE training; "
                                       "DROP TABLE key_epoch; DROP TABLE setting; DROP TABLE "
                                       "ruling; DROP TABLE rollback; ALTER TABLE "
                                       "meta ADD COLUMN job BLOB; PRAGMA user_version=1"),
                     CN_OK);
    struct cn_ledger_identity before = *cn_ledger_identity(world->ledger);
    for (int i = 0; i < 2; i++) { // once to bring it up, once as it is
        cn_ledger_close(world->ledger);
        assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
        assert_memory_equal(cn_ledger_identity(world->ledger)->master, before.master, CN_KEY_SIZE);
        assert_int_equal(cn_ledger_find_board(world->ledger, "a", &found), CN_OK);
        assert_int_equal(found.max_weight, 7);
    }
    assert_int_equal(key_epoch(world, "g"), 0);
    assert_int_equal(cn_ledger_revoke(world->ledger, "a"), CN_OK);
    assert_int_equal(key_epoch(world, "g"), 1);
}

static void a_ledger_of_a_later_schema_is_refused(void **state)
{
    struct aggregator_world *world = *state;
    assert_int_equal(cn_ledger_sql_run(world->ledger, "PRAGMA user_version=6"), CN_OK);
    cn_ledger_close(world->ledger);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_EVERSION);
}

static void another_process_changes_the_generation(void **state)
{
    struct aggregator_world *world = *state;
    int64_t before, after;
    assert_int_equal(cn_ledger_generation(world->ledger, &before), CN_OK);
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(cn_ledger_generation(world->ledger, &after), CN_OK);
    assert_int_not_equal(before, after);
}

static void an_update_counts_once_and_only_while_the_round_is_open(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_contribution first = contribution("a", 1), second = contribution("a", 2),
                                  late = contribution("b", 3), found;
    assert_int_equal(cn_ledger_accept(world->ledger, &first), CN_ESTALE);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_accept(world->ledger, &first), CN_OK);
    assert_int_equal(cn_ledger_accept(world->ledger, &second), CN_EEXIST);
    assert_int_equal(cn_ledger_close_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_accept(world->ledger, &late), CN_ESTALE);
    assert_int_equal(cn_ledger_find_contribution(world->ledger, 1, "a", &found), CN_OK);
    assert_memory_equal(found.digest, first.digest, CN_DIGEST_SIZE);
    assert_int_equal(cn_ledger_find_contribution(world->ledger, 1, "b", &found), CN_ENOTFOUND);
}

static void a_board_that_was_revoked_or_moved_contributes_nothing(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_contribution sent = contribution("a", 1), found;
    assert_int_equal(world_enroll(world, "a", "a", 0), CN_OK);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_revoke(world->ledger, "a"), CN_OK);
    assert_int_equal(cn_ledger_accept(world->ledger, &sent), CN_EAUTH);
    assert_int_equal(world_enroll(world, "a", "b", 0), CN_OK);
    assert_int_equal(cn_ledger_accept(world->ledger, &sent), CN_EAUTH);
    assert_int_equal(cn_ledger_find_contribution(world->ledger, 1, "a", &found), CN_ENOTFOUND);
    snprintf(sent.group, sizeof(sent.group), "b");
    assert_int_equal(cn_ledger_accept(world->ledger, &sent), CN_OK);
}

static void the_outcome_of_a_round_is_final_once_it_closes(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_outcome outcome;
    struct cn_ledger_contribution accepted = contribution("a", 1);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_select(world->ledger, 1, "a"), CN_OK);
    assert_int_equal(cn_ledger_select(world->ledger, 1, "b"), CN_OK);
    assert_int_equal(cn_ledger_outcome(world->ledger, "a", &outcome), CN_OK);
    assert_int_equal(outcome.round, 0);
    assert_int_equal(cn_ledger_accept(world->ledger, &accepted), CN_OK);
    assert_int_equal(cn_ledger_outcome(world->ledger, "a", &outcome), CN_OK);
    assert_int_equal(outcome.round, 1);
    assert_true(outcome.accepted);
    assert_int_equal(cn_ledger_outcome(world->ledger, "b", &outcome), CN_OK);
    assert_int_equal(outcome.round, 0);
    assert_int_equal(cn_ledger_close_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_outcome(world->ledger, "b", &outcome), CN_OK);
    assert_int_equal(outcome.round, 1);
    assert_false(outcome.accepted);
}

static void a_run_is_bound_to_one_model(void **state)
{
    struct aggregator_world *world = *state;
    const uint8_t graph[CN_DIGEST_SIZE] = {1}, other[CN_DIGEST_SIZE] = {3};
    const struct cn_ledger_setting setting = {.from_round = 1, .digest = {2}};
    struct cn_ledger_setting found;
    uint8_t bound[CN_DIGEST_SIZE];
    assert_int_equal(cn_ledger_graph(world->ledger, bound), CN_ENOTFOUND);
    assert_int_equal(cn_ledger_find_setting(world->ledger, 1, &found), CN_ENOTFOUND);
    assert_int_equal(cn_ledger_bind(world->ledger, graph, &setting), CN_OK);
    assert_int_equal(cn_ledger_bind(world->ledger, other, &setting), CN_EEXIST);
    assert_int_equal(cn_ledger_graph(world->ledger, bound), CN_OK);
    assert_memory_equal(bound, graph, CN_DIGEST_SIZE);
    assert_int_equal(cn_ledger_find_setting(world->ledger, 1, &found), CN_OK);
    assert_memory_equal(found.digest, setting.digest, CN_DIGEST_SIZE);
    assert_null(found.job);
}

static void the_identity_survives_and_nobody_else_can_read_it(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_identity before = *cn_ledger_identity(world->ledger);
    char path[128];
    struct stat info;
    world_stop(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    assert_int_equal(cn_ledger_identity(world->ledger)->run, before.run);
    assert_memory_equal(cn_ledger_identity(world->ledger)->master, before.master, CN_KEY_SIZE);
    snprintf(path, sizeof(path), "%s/%s", world->directory, CN_LEDGER_FILE);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void a_ledger_that_is_not_there_is_not_made_by_looking(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger *ledger;
    char path[128];
    snprintf(path, sizeof(path), "%s/nowhere", world->directory);
    assert_int_equal(cn_ledger_open_existing(path, &ledger), CN_ENOTFOUND);
    assert_null(ledger);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void groups_are_compared_with_the_boards_that_are_wanted(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_group_sizes sizes;
    assert_int_equal(cn_ledger_size_groups(world->ledger, 2, &sizes), CN_OK);
    assert_int_equal(sizes.groups, 0);
    assert_string_equal(sizes.largest_name, "");
    for (const char *board = "abcdef"; *board; board++) {
        char name[2] = {*board};
        assert_int_equal(world_enroll(world, name, *board < 'd' ? "g" : "h", 0), CN_OK);
    }
    assert_int_equal(world_enroll(world, "z", "i", 0), CN_OK);
    assert_int_equal(cn_ledger_revoke(world->ledger, "f"), CN_OK);
    assert_int_equal(cn_ledger_size_groups(world->ledger, 2, &sizes), CN_OK);
    assert_int_equal(sizes.groups, 3);
    assert_int_equal(sizes.enough, 2);
    assert_int_equal(sizes.largest, 3);
    assert_string_equal(sizes.largest_name, "g");
    assert_int_equal(sizes.least, 1);
    assert_string_equal(sizes.least_name, "i");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_board_is_enrolled_once, open_world, world_close),
        cmocka_unit_test_setup_teardown(groups_are_compared_with_the_boards_that_are_wanted,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(what_boards_measure_is_the_worse_middle_group, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_revoked_board_may_come_back_with_a_new_group, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(
            a_board_that_leaves_or_returns_raises_the_key_epoch_of_its_group, open_world,
            world_close),
        cmocka_unit_test_setup_teardown(a_ledger_of_the_schema_before_is_brought_up_with_all_it_has,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_ledger_of_a_later_schema_is_refused, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(another_process_changes_the_generation, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(an_update_counts_once_and_only_while_the_round_is_open,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_board_that_was_revoked_or_moved_contributes_nothing,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(the_outcome_of_a_round_is_final_once_it_closes, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(measures_of_a_version_are_means_over_the_samples,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_group_that_its_boards_left_is_still_known, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(another_measurement_leaves_nothing_of_the_first, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(an_updates_measures_stand_beside_its_loss, open_world,
                                        world_close),
        cmocka_unit_test_setup_teardown(a_run_is_bound_to_one_model, open_world, world_close),
        cmocka_unit_test_setup_teardown(the_identity_survives_and_nobody_else_can_read_it,
                                        open_world, world_close),
        cmocka_unit_test_setup_teardown(a_ledger_that_is_not_there_is_not_made_by_looking,
                                        open_world, world_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
