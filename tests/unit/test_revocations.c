// The list of revoked keys beside the state directory, and what a restored ledger makes of it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "aggregator/store/revocations.h"
#include "tests/unit/aggregator_world.h"

static char path[128];

static int open_world(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    world_init(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    assert_int_equal(cn_revocations_path(world->directory, path, sizeof(path)), CN_OK);
    *state = world;
    return 0;
}

static int close_world(void **state)
{
    unlink(path);
    world_deinit(*state);
    free(*state);
    return 0;
}

static struct cn_ledger_board board_of(struct aggregator_world *world, const char *name)
{
    struct cn_ledger_board board;
    assert_int_equal(cn_ledger_find_board(world->ledger, name, &board), CN_OK);
    return board;
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_board_that_the_list_names_is_revoked_once(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_revocations_report report;
    uint64_t key_epoch;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "g", 0), CN_OK);
    struct cn_ledger_board board = board_of(world, "a");
    assert_int_equal(cn_revocations_add(path, &board), CN_OK);
    assert_int_equal(cn_revocations_add(path, &board), CN_OK);
    assert_int_equal(cn_revocations_apply(world->ledger, path, &report), CN_OK);
    assert_int_equal(report.revoked, 1);
    assert_true(board_of(world, "a").revoked);
    assert_false(board_of(world, "b").revoked);
    assert_int_equal(cn_revocations_apply(world->ledger, path, &report), CN_OK);
    assert_int_equal(report.revoked, 0);
    assert_int_equal(cn_ledger_key_epoch(world->ledger, "g", &key_epoch), CN_OK);
    assert_int_equal(key_epoch, 1);
}

static void another_key_of_the_same_name_is_left_alone(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_revocations_report report;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    struct cn_ledger_board board = board_of(world, "a");
    board.secret[0] ^= 1;
    assert_int_equal(cn_revocations_add(path, &board), CN_OK);
    assert_int_equal(cn_revocations_apply(world->ledger, path, &report), CN_OK);
    assert_int_equal(report.revoked, 0);
    assert_false(board_of(world, "a").revoked);
}

static void boards_that_were_revoked_before_the_list_was_kept_are_added(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_revocations_report report;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(cn_ledger_revoke(world->ledger, "a"), CN_OK);
    assert_int_equal(cn_revocations_apply(world->ledger, path, &report), CN_OK);
    assert_int_equal(report.added, 1);
    assert_int_equal(cn_revocations_apply(world->ledger, path, &report), CN_OK);
    assert_int_equal(report.added, 0);
}

static void a_line_that_a_power_cut_left_is_passed_over(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_revocations_report report;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    struct cn_ledger_board board = board_of(world, "a");
    write_text("cairn-revoked-1 b 0123");
    assert_int_equal(cn_revocations_add(path, &board), CN_OK);
    write_text("cairn-revoked-1 ../c 00\nnonsense\n\n");
    assert_int_equal(cn_revocations_apply(world->ledger, path, &report), CN_OK);
    assert_int_equal(report.revoked, 1);
    assert_int_equal(report.malformed, 4);
}

// root revokes, whatever its umask; the service is another user and must read the list.
static void a_new_list_can_be_read_by_everybody(void **state)
{
    struct aggregator_world *world = *state;
    struct stat info;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    struct cn_ledger_board board = board_of(world, "a");
    mode_t mask = umask(0077);
    cn_err err = cn_revocations_add(path, &board);
    umask(mask);
    assert_int_equal(err, CN_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0644);
}

// A folder in its place: a test that runs as root may read every file.
static void a_list_that_cannot_be_read_is_told_apart(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_revocations_report report;
    assert_int_equal(mkdir(path, 0700), 0);
    cn_err err = cn_revocations_apply(world->ledger, path, &report);
    assert_int_equal(rmdir(path), 0);
    assert_int_not_equal(err, CN_OK);
    assert_int_equal(report.unread, err);
}

static void a_restored_ledger_is_of_another_lineage_and_of_newer_keys(void **state)
{
    struct aggregator_world *world = *state;
    uint64_t before, after;
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(cn_ledger_revoke(world->ledger, "a"), CN_OK);
    assert_int_equal(cn_ledger_key_epoch(world->ledger, "g", &before), CN_OK);
    assert_int_equal(cn_ledger_raise_lineage(world->ledger, 0), CN_OK); // no clock
    assert_in_range(cn_ledger_identity(world->ledger)->lineage, 2, 1 + (1 << 24));
    assert_int_equal(cn_ledger_key_epoch(world->ledger, "g", &after), CN_OK);
    assert_true(after > before);
    assert_int_equal(cn_ledger_raise_lineage(world->ledger, 1800000000), CN_OK);
    assert_int_equal(cn_ledger_identity(world->ledger)->lineage, 1800000000);
    assert_int_equal(cn_ledger_raise_lineage(world->ledger, 1700000000), CN_OK); // a clock behind
    assert_in_range(cn_ledger_identity(world->ledger)->lineage, 1800000001, 1800000000 + (1 << 24));
}

static uint32_t restored_without_a_clock(void)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    assert_non_null(world);
    world_init(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    assert_int_equal(cn_ledger_raise_lineage(world->ledger, 0), CN_OK);
    uint32_t lineage = cn_ledger_identity(world->ledger)->lineage;
    world_deinit(world);
    free(world);
    return lineage;
}

// Three, so that chance makes them alike once in 2^48.
static void restores_of_one_copy_without_a_clock_differ(void **state)
{
    (void)state;
    uint32_t first = restored_without_a_clock(), second = restored_without_a_clock();
    assert_true(first != second || second != restored_without_a_clock());
}

#define LIST_TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIST_TEST(a_board_that_the_list_names_is_revoked_once),
        LIST_TEST(another_key_of_the_same_name_is_left_alone),
        LIST_TEST(boards_that_were_revoked_before_the_list_was_kept_are_added),
        LIST_TEST(a_line_that_a_power_cut_left_is_passed_over),
        LIST_TEST(a_new_list_can_be_read_by_everybody),
        LIST_TEST(a_list_that_cannot_be_read_is_told_apart),
        LIST_TEST(a_restored_ledger_is_of_another_lineage_and_of_newer_keys),
        cmocka_unit_test(restores_of_one_copy_without_a_clock_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
