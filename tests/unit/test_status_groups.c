// What `status` of the aggregator says of each group's updates.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/serve/status.h"
#include "aggregator/store/tally.h"
#include "tests/unit/aggregator_world.h"

// Groups a, b and c of one board each; a round is open, whose quorum is two.
static int open_round(void **state)
{
    static const char *const boards[] = {"a", "b", "c"};
    struct world *world = malloc(sizeof(*world));
    struct cn_round_info info = {0};
    world_init(world);
    world->job.over_select = 1.5;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(world_enroll(world, boards[i], boards[i], 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    for (size_t i = 0; i < 3; i++)
        assert_true(world_get_round(world, boards[i], &info));
    assert_int_equal(world_tick(world, 50), CN_OK);
    *state = world;
    return 0;
}

static int close_world(void **state)
{
    world_deinit(*state);
    free(*state);
    return 0;
}

static enum cn_verdict send_update(struct world *world, const char *board, uint64_t salt,
                                   const struct cn_round_info *info)
{
    struct cn_buffer frame = {0};
    struct cn_upload_status status = {0};
    world_make_frame(world, info, board, salt, &frame);
    assert_true(world_send(world, board, info, &frame, &status));
    cn_buffer_deinit(&frame);
    return status.verdict;
}

static void assert_printed(struct world *world, bool json, const char *words)
{
    struct cn_status_live live = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_int_equal(cn_status_print(world->ledger, &world->job, &live, world_now_ms, json, stream),
                     CN_OK);
    fclose(stream);
    if (!strstr(text, words))
        fail_msg("'%s' is not in:\n%s", words, text);
    free(text);
}

static void late_and_rejected_updates_are_counted_for_each_group(void **state)
{
    struct world *world = *state;
    struct cn_round_info info = {0};
    struct cn_tally tally;
    assert_true(world_get_round(world, "a", &info));
    assert_int_equal(send_update(world, "a", 0, &info), CN_VERDICT_ACCEPTED);
    for (uint64_t salt = 50; salt < 55; salt++) // five times in one round: counted once
        assert_int_equal(send_update(world, "a", salt, &info), CN_VERDICT_REJECTED);
    assert_int_equal(send_update(world, "b", 0, &info), CN_VERDICT_ACCEPTED);
    assert_int_equal(world_tick(world, 50), CN_OK);
    assert_int_equal(send_update(world, "c", 0, &info), CN_VERDICT_LATE);
    assert_int_equal(cn_tally_read(world->ledger, "a", &tally), CN_OK);
    assert_int_equal(tally.accepted, 1);
    assert_int_equal(tally.late, 0);
    assert_int_equal(tally.rejected, 1);
    assert_string_equal(tally.reason, "another update of this group counts for the round");
    assert_int_equal(cn_tally_read(world->ledger, "c", &tally), CN_OK);
    assert_int_equal(tally.accepted, 0);
    assert_int_equal(tally.late, 1);
    assert_printed(world, true,
                   "{\"group\":\"a\",\"accepted\":1,\"late\":0,\"rejected\":1,"
                   "\"rejected_round\":1,\"reason\":\"another update of this group");
    assert_printed(world, true, "{\"group\":\"c\",\"accepted\":0,\"late\":1,\"rejected\":0}");
    assert_printed(world, false, "round 1: another update of this group counts for the round");
}

static void a_round_that_is_not_there_yet_is_not_counted(void **state)
{
    struct world *world = *state;
    struct cn_round_info info = {0}, later;
    struct cn_tally tally;
    assert_true(world_get_round(world, "a", &info));
    later = info;
    later.round = UINT32_MAX;
    assert_int_equal(send_update(world, "a", 0, &later), CN_VERDICT_REJECTED);
    assert_int_equal(cn_tally_read(world->ledger, "a", &tally), CN_OK);
    assert_int_equal(tally.rejected, 0);
}

#define ROUND_TEST(name) cmocka_unit_test_setup_teardown(name, open_round, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROUND_TEST(late_and_rejected_updates_are_counted_for_each_group),
        ROUND_TEST(a_round_that_is_not_there_yet_is_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
