// Epochs of control variates: when all groups begin again with zeros.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/control_epochs.h"
#include "aggregator/ledger/rulings.h"
#include "tests/unit/aggregator_world.h"

static int open_world(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    world_init(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "h", 0), CN_OK);
    *state = world;
    return 0;
}

// Opens a round and its epoch. Returns the round that began the epoch.
static uint32_t open_round(struct aggregator_world *world, uint32_t round, const char *reason)
{
    struct cn_control_epoch epoch, found;
    char why[CN_CONTROL_TEXT];

    assert_int_equal(cn_ledger_open_round(world->ledger, round), CN_OK);
    assert_int_equal(cn_control_epoch_open(world->ledger, round, &epoch, why), CN_OK);
    assert_string_equal(why, reason);
    assert_int_equal(cn_control_epoch_find(world->ledger, round, &found), CN_OK);
    assert_int_equal(found.begun, epoch.begun);
    assert_int_equal(found.groups, epoch.groups);
    return epoch.begun;
}

// An update of a group whose variate was made of count updates of an epoch.
static void accept_update(struct aggregator_world *world, uint32_t round, const char *group,
                          uint64_t epoch, uint64_t count)
{
    struct cn_ledger_contribution made = {
        .round = round, .size = 10, .weight = 3, .control_epoch = epoch, .control_count = count};
    snprintf(made.group, sizeof(made.group), "%s", group);
    snprintf(made.board, sizeof(made.board), "%s", strcmp(group, "g") == 0 ? "a" : "b");
    memset(made.digest, (int)round, sizeof(made.digest));
    assert_int_equal(cn_ledger_accept(world->ledger, &made), CN_OK);
}

static void close_round(struct aggregator_world *world, uint32_t round)
{
    struct cn_ledger_version version = {.number = round};

    memset(version.digest, (int)round, sizeof(version.digest));
    assert_int_equal(cn_ledger_close_round(world->ledger, round), CN_OK);
    assert_int_equal(cn_ledger_add_version(world->ledger, &version), CN_OK);
}

static void an_epoch_goes_on_while_nothing_changes(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_control_epoch epoch;

    assert_int_equal(open_round(world, 1, "the round before had none"), 1);
    accept_update(world, 1, "g", 1, 0);
    close_round(world, 1);
    assert_int_equal(open_round(world, 2, ""), 1);
    accept_update(world, 2, "g", 1, 1);
    accept_update(world, 2, "h", 1, 0); // it was not in round 1
    close_round(world, 2);
    assert_int_equal(open_round(world, 3, ""), 1);
    assert_int_equal(cn_control_epoch_find(world->ledger, 3, &epoch), CN_OK);
    assert_int_equal(epoch.groups, 2);
    assert_int_equal(cn_control_epoch_find(world->ledger, 4, &epoch), CN_ENOTFOUND);
    assert_int_equal(cn_control_epoch_find(world->ledger, 0, &epoch), CN_ENOTFOUND);
}

// A restart opens the round again, also after boards were enrolled meanwhile.
static void a_round_that_is_opened_again_keeps_its_epoch(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_control_epoch epoch;
    char why[CN_CONTROL_TEXT];

    assert_int_equal(open_round(world, 1, "the round before had none"), 1);
    assert_int_equal(world_enroll(world, "c", "i", 0), CN_OK);
    assert_int_equal(cn_control_epoch_open(world->ledger, 1, &epoch, why), CN_OK);
    assert_int_equal(epoch.begun, 1);
    assert_int_equal(epoch.groups, 2);
    assert_string_equal(why, "");
    close_round(world, 1);
    assert_int_equal(open_round(world, 2, "3 groups are enrolled, and others than before"), 2);
    close_round(world, 2);
    assert_int_equal(cn_ledger_revoke(world->ledger, "b"), CN_OK);
    assert_int_equal(open_round(world, 3, "2 groups are enrolled, and others than before"), 3);
    close_round(world, 3);
    assert_int_equal(world_enroll(world, "d", "g", 0), CN_OK); // another board of a group
    assert_int_equal(open_round(world, 4, ""), 3);
}

static void a_group_that_lost_its_variate_ends_the_epoch(void **state)
{
    struct aggregator_world *world = *state;

    open_round(world, 1, "the round before had none");
    accept_update(world, 1, "g", 1, 0);
    accept_update(world, 1, "h", 1, 0);
    close_round(world, 1);
    open_round(world, 2, "");
    accept_update(world, 2, "g", 1, 1);
    accept_update(world, 2, "h", 1, 0); // its update of round 1 is not in it any more
    close_round(world, 2);
    assert_int_equal(open_round(world, 3, "group h has lost its own"), 3);
    accept_update(world, 3, "g", 1, 2); // of an earlier epoch
    close_round(world, 3);
    assert_int_equal(open_round(world, 4, "group g has lost its own"), 4);
}

static void versions_that_updates_did_not_make_end_the_epoch(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger_version version = {.number = 1};
    struct cn_ruling ruling = {.version = 1, .kind = CN_RULING_REFUSED, .reason = "worse"};

    memset(version.digest, 1, sizeof(version.digest));
    open_round(world, 1, "the round before had none");
    assert_int_equal(cn_ledger_close_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ruling_add(world->ledger, &version, &ruling), CN_OK);
    assert_int_equal(open_round(world, 2, "version 1 was not made of updates"), 2);
}

// The job had no control variates in round 2.
static void a_round_without_variates_ends_the_epoch(void **state)
{
    struct aggregator_world *world = *state;

    open_round(world, 1, "the round before had none");
    close_round(world, 1);
    assert_int_equal(cn_ledger_open_round(world->ledger, 2), CN_OK);
    accept_update(world, 2, "g", 0, 0);
    close_round(world, 2);
    assert_int_equal(open_round(world, 3, "the round before had none"), 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, world_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_epoch_goes_on_while_nothing_changes),
        TEST(a_round_that_is_opened_again_keeps_its_epoch),
        TEST(a_group_that_lost_its_variate_ends_the_epoch),
        TEST(versions_that_updates_did_not_make_end_the_epoch),
        TEST(a_round_without_variates_ends_the_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
