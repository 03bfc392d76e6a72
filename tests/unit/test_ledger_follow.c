// The ledger of a run that begins with a version of an earlier run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/ledger_sql.h"
#include "tests/unit/aggregator_world.h"

struct both {
    struct aggregator_world earlier, next;
};

static int open_both(void **state)
{
    struct both *both = malloc(sizeof(*both));
    world_init(&both->earlier);
    world_init(&both->next);
    assert_int_equal(cn_ledger_open(both->earlier.directory, &both->earlier.ledger), CN_OK);
    assert_int_equal(cn_ledger_open(both->next.directory, &both->next.ledger), CN_OK);
    assert_int_equal(world_enroll(&both->earlier, "b", "g", 7), CN_OK);
    assert_int_equal(world_enroll(&both->earlier, "a", "h", 0), CN_OK);
    assert_int_equal(world_enroll(&both->earlier, "lost", "h", 0), CN_OK);
    assert_int_equal(cn_ledger_revoke(both->earlier.ledger, "lost"), CN_OK);
    assert_int_equal(cn_ledger_raise_lineage(both->earlier.ledger, 1000), CN_OK);
    *state = both;
    return 0;
}

static int close_both(void **state)
{
    struct both *both = *state;
    world_deinit(&both->earlier);
    world_deinit(&both->next);
    free(both);
    return 0;
}

static void reopen(struct aggregator_world *world)
{
    cn_ledger_close(world->ledger);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
}

// Adds name, group and what else counts of a board to a text.
static cn_err describe(void *context, const struct cn_ledger_board *board)
{
    char *text = context;
    snprintf(text + strlen(text), 200, "%s %s %d %u %d; ", board->name, board->group,
             board->secret[0], (unsigned)board->max_weight, board->revoked);
    return CN_OK;
}

static void the_boards_keep_keys_groups_order_and_revocations(void **state)
{
    struct both *both = *state;
    char text[1000] = "";
    uint64_t epochs[2];
    assert_int_equal(cn_ledger_check_empty(both->next.ledger), CN_OK);
    assert_int_equal(cn_ledger_follow(both->next.ledger, both->earlier.ledger, NULL), CN_OK);
    reopen(&both->next);
    assert_int_equal(cn_ledger_boards(both->next.ledger, describe, text), CN_OK);
    assert_string_equal(text, "b g 98 7 0; a h 97 0 0; lost h 108 0 1; ");
    assert_int_equal(cn_ledger_key_epoch(both->earlier.ledger, "h", &epochs[0]), CN_OK);
    assert_int_equal(cn_ledger_key_epoch(both->next.ledger, "h", &epochs[1]), CN_OK);
    assert_int_equal(epochs[0], ((uint64_t)999 << 32) + 1);
    assert_int_equal(epochs[0], epochs[1]);
    const struct cn_ledger_identity *earlier = cn_ledger_identity(both->earlier.ledger),
                                    *next = cn_ledger_identity(both->next.ledger);
    assert_true(earlier->run != next->run);
    assert_memory_not_equal(earlier->master, next->master, CN_KEY_SIZE);
}

static void the_first_version_model_and_settings_come_with_the_boards(void **state)
{
    struct both *both = *state;
    const uint8_t graph[CN_DIGEST_SIZE] = {5};
    const struct cn_ledger_version first = {.number = 0, .digest = {6}};
    const struct cn_ledger_setting setting = {.from_round = 1, .digest = {7}};
    const struct cn_ledger_start start = {{UINT64_MAX, 12, {8}}, &first, graph, &setting};
    struct cn_ledger *ledger = both->next.ledger;
    struct cn_ledger_origin origin;
    struct cn_ledger_version found;
    uint8_t bound[CN_DIGEST_SIZE];
    assert_int_equal(cn_ledger_find_origin(ledger, &origin), CN_ENOTFOUND);
    assert_int_equal(cn_ledger_follow(ledger, both->earlier.ledger, &start), CN_OK);
    assert_int_equal(cn_ledger_find_origin(ledger, &origin), CN_OK);
    assert_true(origin.run == UINT64_MAX && origin.version == 12 && origin.digest[0] == 8);
    assert_int_equal(cn_ledger_newest_version(ledger, &found), CN_OK);
    assert_true(found.number == 0 && found.digest[0] == 6);
    assert_int_equal(cn_ledger_graph(ledger, bound), CN_OK);
    assert_memory_equal(bound, graph, CN_DIGEST_SIZE);
}

static void a_ledger_that_is_used_is_left_as_it_is(void **state)
{
    struct both *both = *state;
    char text[1000] = "";
    assert_int_equal(world_enroll(&both->next, "c", "c", 0), CN_OK);
    assert_int_equal(cn_ledger_follow(both->next.ledger, both->earlier.ledger, NULL), CN_EEXIST);
    assert_int_equal(cn_ledger_boards(both->next.ledger, describe, text), CN_OK);
    assert_string_equal(text, "c c 99 0 0; ");
}

static void what_cannot_be_written_as_a_whole_is_not_written_at_all(void **state)
{
    struct both *both = *state;
    const uint8_t graph[CN_DIGEST_SIZE] = {5};
    const struct cn_ledger_version first = {.number = 0};
    const struct cn_ledger_setting setting = {.from_round = 1};
    const struct cn_ledger_start start = {{1, 1, {8}}, &first, graph, &setting};
    // The last write fails.
    assert_int_equal(cn_ledger_sql_run(both->next.ledger,
                                       "CREATE TRIGGER no BEFORE INSERT ON version BEGIN"
                                       " SELECT RAISE(ABORT,'no'); END"),
                     CN_OK);
    assert_int_not_equal(cn_ledger_follow(both->next.ledger, both->earlier.ledger, &start), CN_OK);
    assert_int_equal(cn_ledger_check_empty(both->next.ledger), CN_OK);
}

static void the_ledger_of_a_job_gets_each_change_of_its_gateways_boards(void **state)
{
    struct both *both = *state;
    char text[1000] = "";
    bool changed;
    assert_int_equal(cn_ledger_mirror_boards(both->next.ledger, both->earlier.ledger, &changed),
                     CN_OK);
    assert_true(changed);
    assert_int_equal(cn_ledger_boards(both->next.ledger, describe, text), CN_OK);
    assert_string_equal(text, "b g 98 7 0; a h 97 0 0; lost h 108 0 1; ");
    assert_int_equal(cn_ledger_mirror_boards(both->next.ledger, both->earlier.ledger, &changed),
                     CN_OK);
    assert_false(changed);
    assert_int_equal(cn_ledger_revoke(both->earlier.ledger, "b"), CN_OK);
    assert_int_equal(world_enroll(&both->earlier, "lost", "i", 3), CN_OK);
    assert_int_equal(world_enroll(&both->next, "unknown", "i", 0), CN_OK);
    assert_int_equal(cn_ledger_mirror_boards(both->next.ledger, both->earlier.ledger, &changed),
                     CN_OK);
    assert_true(changed);
    text[0] = '\0';
    assert_int_equal(cn_ledger_boards(both->next.ledger, describe, text), CN_OK);
    assert_string_equal(text, "b g 98 7 1; a h 97 0 0; lost i 108 3 0; unknown i 117 0 1; ");
}

#define WITH_BOTH(test) cmocka_unit_test_setup_teardown(test, open_both, close_both)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BOTH(the_boards_keep_keys_groups_order_and_revocations),
        WITH_BOTH(the_first_version_model_and_settings_come_with_the_boards),
        WITH_BOTH(a_ledger_that_is_used_is_left_as_it_is),
        WITH_BOTH(what_cannot_be_written_as_a_whole_is_not_written_at_all),
        WITH_BOTH(the_ledger_of_a_job_gets_each_change_of_its_gateways_boards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
