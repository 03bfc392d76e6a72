// The boards as the running aggregator knows them, while another process writes to the ledger.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "tests/unit/aggregator_world.h"

static void revoke_another(void *context, const char *board)
{
    assert_string_equal(board, "a");
    assert_int_equal(cn_ledger_revoke(context, "b"), CN_OK);
}

// The revocation of b is written after the boards were read and before the key epochs are.
static void a_board_that_counts_as_enrolled_is_not_served_newer_keys(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    struct cn_ledger *other;
    (void)state;
    assert_non_null(world);
    world_init(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    assert_int_equal(world_enroll(world, "a", "g", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "g", 0), CN_OK);
    assert_int_equal(world_enroll(world, "c", "g", 0), CN_OK);
    assert_int_equal(cn_roster_open(world->ledger, &world->roster), CN_OK);
    assert_int_equal(cn_ledger_open(world->directory, &other), CN_OK);

    assert_int_equal(cn_ledger_revoke(other, "a"), CN_OK);
    assert_int_equal(cn_roster_refresh(world->roster, revoke_another, other), CN_OK);
    assert_non_null(cn_roster_find(world->roster, "b"));
    assert_int_equal(cn_roster_find_group(world->roster, "g")->key_epoch, 1);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_null(cn_roster_find(world->roster, "b"));
    assert_int_equal(cn_roster_find_group(world->roster, "g")->key_epoch, 2);

    cn_ledger_close(other);
    world_deinit(world);
    free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_board_that_counts_as_enrolled_is_not_served_newer_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
