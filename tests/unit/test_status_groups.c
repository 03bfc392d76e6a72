// The lines about each group's updates in the aggregator's `status`.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/rulings.h"
#include "aggregator/ledger/tally.h"
#include "aggregator/serve/status.h"
#include "aggregator/serve/status_print.h"
#include "tests/unit/aggregator_world.h"

// Groups a, b and c of one board each; a round is open, whose quorum is two.
static int open_round(void **state)
{
    static const char *const boards[] = {"a", "b", "c"};
    struct aggregator_world *world = malloc(sizeof(*world));
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

static enum cn_verdict send_update(struct aggregator_world *world, const char *board, uint64_t salt,
                                   const struct cn_round_info *info)
{
    struct cn_buffer frame = {0};
    struct cn_upload_status status = {0};
    world_make_frame(world, info, board, salt, &frame);
    assert_true(world_send(world, board, info, &frame, &status));
    cn_buffer_deinit(&frame);
    return status.verdict;
}

// Returns what status prints, to be freed.
static char *print_status(struct aggregator_world *world, bool json)
{
    struct cn_run_state run = {0};
    struct cn_live_state live;
    char path[128];
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_int_equal(cn_status_write(world->directory, world->roster, &run, world_now_ms), CN_OK);
    assert_int_equal(cn_status_read(world->directory, world_now_ms, &live), CN_OK);
    snprintf(path, sizeof(path), "%s/%s", world->directory, CN_STATUS_FILE);
    unlink(path);
    assert_int_equal(cn_status_print(world->ledger, &world->job, &live, world_now_ms, json, stream),
                     CN_OK);
    fclose(stream);
    cn_status_deinit(&live);
    return text;
}

static void assert_printed(struct aggregator_world *world, bool json, const char *words)
{
    char *text = print_status(world, json);
    if (!strstr(text, words))
        fail_msg("'%s' is not in:\n%s", words, text);
    free(text);
}

static void a_rollback_is_no_news_after_twenty_versions(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ruling ruling = {.version = 1, .kind = CN_RULING_ROLLBACK, .reason = "a test"};
    struct cn_ledger_version version;
    assert_int_equal(cn_ledger_find_version(world->ledger, 0, &version), CN_OK);
    version.number = 1;
    version.digest[0] ^= 1;
    assert_int_equal(cn_ledger_close_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ruling_add(world->ledger, &version, &ruling), CN_OK);
    assert_printed(world, false, "version 1 went back to version 0: a test");
    while (version.number < 21) {
        version.digest[0] = (uint8_t)(100 + version.number++);
        assert_int_equal(cn_ledger_open_round(world->ledger, version.number), CN_OK);
        assert_int_equal(cn_ledger_close_round(world->ledger, version.number), CN_OK);
        assert_int_equal(cn_ledger_add_version(world->ledger, &version), CN_OK);
    }
    char *text = print_status(world, false);
    assert_null(strstr(text, "went back"));
    free(text);
}

static void late_and_rejected_updates_are_counted_for_each_group(void **state)
{
    struct aggregator_world *world = *state;
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
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0}, later;
    struct cn_tally tally;
    assert_true(world_get_round(world, "a", &info));
    later = info;
    later.round = UINT32_MAX;
    assert_int_equal(send_update(world, "a", 0, &later), CN_VERDICT_REJECTED);
    assert_int_equal(cn_tally_read(world->ledger, "a", &tally), CN_OK);
    assert_int_equal(tally.rejected, 0);
}

// Board b leads its group b and declares an update; what it says of its members is silent_s.
static void declare_members(struct aggregator_world *world, const char *const *names,
                            const uint32_t *silent_s, uint32_t count)
{
    struct cn_round_info info = {0};
    struct cn_declare_request declared = {.size = 100, .member_count = count};
    struct cn_coap_reply reply;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    assert_true(world_get_round(world, "b", &info));
    declared.run = info.run;
    declared.round = info.round;
    memcpy(declared.base, info.version_digest, CN_DIGEST_SIZE);
    for (uint32_t i = 0; i < count; i++)
        declared.members[i] = (struct cn_member_sign){cn_name_hash(names[i]), silent_s[i]};
    assert_int_equal(cn_message_put_declare(&declared, bytes, &size), CN_OK);
    world_ask(world, "b", CN_COAP_POST, "u", bytes, size, &reply);
    assert_int_equal(reply.code, CN_COAP_CREATED);
}

static void a_member_that_its_group_misses_is_named(void **state)
{
    static const char *const names[] = {"b", "b2", "b3", "a"};
    struct aggregator_world *world = *state;
    assert_int_equal(world_enroll(world, "b2", "b", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b3", "b", 0), CN_OK);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    declare_members(world, names, (uint32_t[]){0, 60, 0, 60}, 4);
    world_now_ms += 12000;
    assert_printed(world, false, "missing in its group since 72 s");
    // b3 was not heard itself, and is alive; board a is of another group.
    assert_printed(world, true,
                   "\"board\":\"b3\",\"group\":\"b\",\"revoked\":false,\"max_weight\":0,"
                   "\"silent_s\":12,\"status\":\"in the round: its update is awaited\"");
    assert_printed(world, true,
                   "\"status\":\"in the round: its update is awaited\"}\n{\"board\":\"b\"");
    declare_members(world, names, (uint32_t[]){0, 0, 0, 0}, 4);
    assert_printed(world, true,
                   "\"board\":\"b2\",\"group\":\"b\",\"revoked\":false,\"max_weight\":0,"
                   "\"silent_s\":0,\"status\":\"in the round: its update is awaited\"");
}

// Ids that name nobody, or boards of other groups, do not count.
static void the_boards_of_a_round_are_those_that_took_part(void **state)
{
    struct aggregator_world *world = *state;
    const struct cn_member_sign members[] = {
        {cn_name_hash("b"), 0}, {cn_name_hash("b2"), 0}, {cn_name_hash("b3"), 9},
        {cn_name_hash("a"), 0}, {cn_name_hash("x"), 0},
    };
    struct cn_round_info info = {0};
    uint32_t boards;
    assert_int_equal(world_enroll(world, "b2", "b", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b3", "b", 0), CN_OK);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_int_equal(cn_roster_count(world->roster, "b", members, 5), 2);
    assert_int_equal(cn_roster_count(world->roster, "b", NULL, 0), 1);
    assert_true(world_get_round(world, "a", &info));
    assert_int_equal(send_update(world, "a", 0, &info), CN_VERDICT_ACCEPTED);
    assert_int_equal(send_update(world, "b", 0, &info), CN_VERDICT_ACCEPTED);
    assert_int_equal(cn_tally_boards(world->ledger, 1, &boards), CN_OK);
    assert_int_equal(boards, 2);
    assert_int_equal(cn_tally_attend(world->ledger, "b", 1, 2), CN_OK);
    assert_int_equal(cn_tally_boards(world->ledger, 1, &boards), CN_OK);
    assert_int_equal(boards, 3);
}

#define ROUND_TEST(name) cmocka_unit_test_setup_teardown(name, open_round, world_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROUND_TEST(late_and_rejected_updates_are_counted_for_each_group),
        ROUND_TEST(a_rollback_is_no_news_after_twenty_versions),
        ROUND_TEST(a_member_that_its_group_misses_is_named),
        ROUND_TEST(the_boards_of_a_round_are_those_that_took_part),
        ROUND_TEST(a_round_that_is_not_there_yet_is_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
