// Asynchronous rounds with made-up boards, a flaky store and a fake clock.
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/staleness.h"
#include "aggregator/ledger/steering.h"
#include "aggregator/merge/stale.h"
#include "aggregator/serve/metrics.h"
#include "aggregator/serve/status.h"
#include "aggregator/serve/status_print.h"
#include "aggregator/show/round_view.h"
#include "aggregator/show/show.h"
#include "tests/unit/aggregator_world.h"

static const char *const groups[] = {"a", "b", "c"};

static void begin(struct aggregator_world *world, uint32_t buffer, uint32_t most, bool wait)
{
    world_init(world);
    world->job.quorum = 3;
    world->job.rounds = 100;
    world->job.async = (struct cn_rounds_async){CN_ROUNDS_ASYNCHRONOUS, buffer, most, wait};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(world_enroll(world, groups[i], groups[i], 0), CN_OK);
    world_keep_alive(world);
}

// Lets the aggregator go on, and starts it again when it met an error.
static void go_on(struct aggregator_world *world)
{
    world_keep_alive(world);
    bool failed = world->flaky.fail_at && world->flaky.operations >= world->flaky.fail_at;
    if (world_tick(world, 1000) != CN_OK || failed) {
        cn_flaky_store_fail(&world->flaky, 0, false, CN_OK);
        world_stop(world);
        world_keep_alive(world);
    }
}

// Returns the round as the group sees it, once it is number and open.
static struct cn_round_info wait_for_round(struct aggregator_world *world, const char *group,
                                           uint32_t number)
{
    struct cn_round_info info = {0};
    for (int i = 0; i < 100; i++) {
        for (size_t n = 0; n < 3; n++)
            (void)!world_get_round(world, groups[n], &info);
        if (world_get_round(world, group, &info) && info.state == CN_ROUND_OPEN &&
            info.round >= number)
            return info;
        go_on(world);
    }
    fail_msg("round %u did not open", number);
    return info;
}

// Sends the group's update of a round until there is a verdict.
static enum cn_verdict send_round(struct aggregator_world *world, const char *group,
                                  const struct cn_round_info *info, uint64_t salt)
{
    struct cn_upload_status status = {0};
    struct cn_buffer frame;
    bool decided = false;
    world_make_frame(world, info, group, salt, &frame);
    for (int i = 0; i < 100 && !decided; i++) {
        world_keep_alive(world);
        decided = world_send(world, group, info, &frame, &status) && status.decided;
        if (!decided) {
            struct cn_round_info other;
            go_on(world);
            (void)!world_get_round(world, group, &other); // registers after a start
        }
    }
    cn_buffer_deinit(&frame);
    assert_true(decided);
    return status.verdict;
}

static struct cn_ledger_contribution part_of(struct aggregator_world *world, uint32_t round,
                                             const char *group)
{
    struct cn_ledger_contribution found;
    assert_int_equal(cn_ledger_find_contribution(world->ledger, round, group, &found), CN_OK);
    return found;
}

// Makes four versions; the update of c for round 1 goes into version 3. Returns false when the run
// had fewer operations of the store than fail_at.
static bool run_with_failure(unsigned fail_at, uint8_t digest[CN_DIGEST_SIZE])
{
    struct aggregator_world world;
    begin(&world, 2, 8, false);
    struct cn_round_info first = wait_for_round(&world, "c", 1), now;
    cn_flaky_store_fail(&world.flaky, fail_at, false, CN_EIO);
    for (uint32_t round = 1; round <= 4; round++) {
        const char *second = round >= 3 ? "c" : "b";
        now = wait_for_round(&world, "a", round);
        assert_int_equal(send_round(&world, "a", &now, 0), CN_VERDICT_ACCEPTED);
        if (round == 3)
            now = first;
        else
            now = wait_for_round(&world, second, round);
        assert_int_equal(send_round(&world, second, &now, 0), CN_VERDICT_ACCEPTED);
    }
    now = wait_for_round(&world, "a", 5);
    assert_int_equal(part_of(&world, 1, "c").version, 3);
    memcpy(digest, now.version_digest, CN_DIGEST_SIZE);
    bool reached = world.flaky.operations >= fail_at;
    world_deinit(&world);
    return reached;
}

static void the_same_members_make_the_same_versions_whatever_fails(void **state)
{
    uint8_t expected[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    unsigned number = 1;
    (void)state;
    run_with_failure(UINT_MAX, expected);
    while (run_with_failure(number++, digest))
        assert_memory_equal(digest, expected, CN_DIGEST_SIZE);
    assert_true(number > 20);
}

static void two_updates_of_one_base_count_once(void **state)
{
    struct aggregator_world world;
    (void)state;
    begin(&world, 2, 8, false);
    struct cn_round_info info = wait_for_round(&world, "a", 1);
    assert_int_equal(send_round(&world, "a", &info, 0), CN_VERDICT_ACCEPTED);
    assert_int_equal(send_round(&world, "a", &info, 0), CN_VERDICT_ACCEPTED); // a repeat
    assert_int_equal(send_round(&world, "a", &info, 9), CN_VERDICT_REJECTED);
    world_deinit(&world);
}

// Makes versions without c up to number.
static void make_versions(struct aggregator_world *world, uint32_t number)
{
    for (;;) {
        struct cn_round_info info = wait_for_round(world, "a", 1);
        if (info.version >= number)
            return;
        assert_int_equal(send_round(world, "a", &info, 0), CN_VERDICT_ACCEPTED);
        assert_int_equal(send_round(world, "b", &info, 0), CN_VERDICT_ACCEPTED);
        wait_for_round(world, "a", info.round + 1);
    }
}

static void a_group_nine_versions_behind_is_late_and_its_next_round_starts(void **state)
{
    struct aggregator_world world;
    struct cn_staleness staleness;
    (void)state;
    begin(&world, 2, 8, false);
    struct cn_round_info first = wait_for_round(&world, "c", 1);
    cn_roster_serve(world.roster, "c", 0); // it fetches version 0
    make_versions(&world, 8);
    assert_int_equal(cn_staleness_read(world.ledger, "c", &staleness), CN_OK);
    assert_int_equal(staleness.training, 1);
    assert_int_equal(wait_for_round(&world, "c", 9).oldest, 1); // 8 behind: still in time
    make_versions(&world, 9);
    assert_int_equal(send_round(&world, "c", &first, 0), CN_VERDICT_LATE);
    assert_int_equal(cn_staleness_read(world.ledger, "c", &staleness), CN_OK);
    assert_int_equal(staleness.late, 1);
    struct cn_round_info now = wait_for_round(&world, "c", 10);
    assert_true(now.invited);
    assert_int_equal(now.oldest, 2);
    assert_int_equal(now.decided_round, 1); // so the board knows that nothing counts
    assert_false(now.decided_accepted);
    assert_int_equal(send_round(&world, "c", &now, 0), CN_VERDICT_ACCEPTED);
    assert_int_equal(cn_staleness_read(world.ledger, "c", &staleness), CN_OK);
    assert_int_equal(staleness.late, 0);
    assert_int_equal(staleness.delivered, 10);
    world_deinit(&world);
}

static void a_full_buffer_waits_for_a_group_that_would_be_too_late(void **state)
{
    struct aggregator_world world;
    struct cn_run_state now;
    (void)state;
    begin(&world, 2, 0, true);
    struct cn_round_info info = wait_for_round(&world, "c", 1);
    cn_roster_serve(world.roster, "c", 0);
    assert_int_equal(send_round(&world, "a", &info, 0), CN_VERDICT_ACCEPTED);
    assert_int_equal(send_round(&world, "b", &info, 0), CN_VERDICT_ACCEPTED);
    for (int i = 0; i < 5; i++)
        go_on(&world);
    cn_run_get_state(world.run, world_now_ms, &now);
    assert_int_equal(now.phase, CN_RUN_OPEN);
    assert_int_equal(send_round(&world, "c", &info, 0), CN_VERDICT_ACCEPTED);
    wait_for_round(&world, "a", 2);
    assert_int_equal(part_of(&world, 1, "c").version, 1);
    world_deinit(&world);
}

// Checks the number of invited groups as the run and as the ledger tell it.
static void assert_invited(struct aggregator_world *world, uint32_t invited)
{
    struct cn_run_state now;
    struct cn_round_view view;
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    cn_run_get_state(world->run, world_now_ms, &now);
    assert_int_equal(now.phase, CN_RUN_OPEN);
    assert_int_equal(now.selected, invited);
    assert_int_equal(cn_round_view_load(world->ledger, &world->job, NULL, &view), CN_OK);
    assert_int_equal(view.invited, invited);
    assert_int_equal(view.oldest, now.oldest);
    cn_round_view_deinit(&view);
}

static void drain(struct aggregator_world *world, const char *group, bool drained)
{
    struct cn_ledger *ledger;
    assert_int_equal(cn_ledger_open(world->directory, &ledger), CN_OK);
    assert_int_equal(cn_steering_drain(ledger, group, drained), CN_OK);
    cn_ledger_close(ledger);
}

static void a_round_invites_all_groups_that_nobody_drained(void **state)
{
    struct aggregator_world world;
    (void)state;
    begin(&world, 2, 8, false);
    struct cn_round_info info = wait_for_round(&world, "a", 1);
    assert_invited(&world, 3);
    assert_int_equal(send_round(&world, "a", &info, 0), CN_VERDICT_ACCEPTED);
    assert_invited(&world, 3);
    drain(&world, "c", true);
    assert_invited(&world, 2);
    drain(&world, "a", true); // it has delivered
    assert_invited(&world, 2);
    drain(&world, "c", false);
    assert_invited(&world, 3);
    world_deinit(&world);
}

static enum cn_run_phase phase_of(const struct aggregator_world *world)
{
    struct cn_run_state now;
    cn_run_get_state(world->run, world_now_ms, &now);
    return now.phase;
}

static void pass_deadline(struct aggregator_world *world)
{
    world_keep_alive(world);
    assert_int_equal(world_tick(world, world->job.deadline_ms + 1000), CN_OK);
    world_keep_alive(world);
}

static void a_group_that_never_delivers_is_not_waited_for_a_third_time(void **state)
{
    struct aggregator_world world;
    (void)state;
    begin(&world, 2, 0, true);
    world.job.deadline_ms = 3600000; // much more than the test lets go by otherwise
    for (uint32_t round = 1; round <= 3; round++) {
        struct cn_round_info info = wait_for_round(&world, "a", round);
        cn_roster_serve(world.roster, "c", round - 1); // it fetches the version and sends nothing
        assert_int_equal(send_round(&world, "a", &info, 0), CN_VERDICT_ACCEPTED);
        assert_int_equal(send_round(&world, "b", &info, 0), CN_VERDICT_ACCEPTED);
        for (int i = 0; i < 5; i++)
            go_on(&world);
        if (round < 3) {
            assert_int_equal(wait_for_round(&world, "a", round).round, round);
            pass_deadline(&world);
        }
    }
    struct cn_round_info info = wait_for_round(&world, "c", 4); // there was no deadline
    assert_int_equal(send_round(&world, "c", &info, 0), CN_VERDICT_ACCEPTED);
    struct cn_staleness staleness;
    assert_int_equal(cn_staleness_read(world.ledger, "c", &staleness), CN_OK);
    assert_int_equal(staleness.late, 0); // so it is waited for again
    world_deinit(&world);
}

// The medians need three updates: one group alone must not decide a version because others are
// slow.
static void a_deadline_makes_no_version_of_fewer_than_three_updates(void **state)
{
    struct aggregator_world world;
    (void)state;
    begin(&world, 3, 8, false);
    struct cn_round_info info = wait_for_round(&world, "a", 1);
    assert_int_equal(send_round(&world, "a", &info, 0), CN_VERDICT_ACCEPTED);
    pass_deadline(&world);
    assert_int_equal(phase_of(&world), CN_RUN_OPEN);
    assert_int_equal(send_round(&world, "b", &info, 0), CN_VERDICT_ACCEPTED);
    pass_deadline(&world);
    assert_int_equal(phase_of(&world), CN_RUN_OPEN);
    world.job.trust_groups = true;
    pass_deadline(&world);
    assert_int_equal(wait_for_round(&world, "a", 2).round, 2);
    world_deinit(&world);
}

// Declares the group's update of a round, which cannot be taken now. Returns the Max-Age.
static uint32_t put_off(struct aggregator_world *world, const char *group,
                        const struct cn_round_info *info)
{
    struct cn_coap_reply reply;
    struct cn_buffer frame;
    world_make_frame(world, info, group, 0, &frame);
    world_declare(world, group, info, &frame, &reply);
    cn_buffer_deinit(&frame);
    assert_int_equal(reply.code, CN_COAP_UNAVAILABLE);
    return reply.max_age_s;
}

static void a_board_comes_back_seldom_while_the_run_is_paused(void **state)
{
    struct aggregator_world world;
    (void)state;
    begin(&world, 2, 8, false);
    struct cn_round_info info = wait_for_round(&world, "c", 1);
    assert_int_equal(send_round(&world, "a", &info, 0), CN_VERDICT_ACCEPTED);
    assert_int_equal(send_round(&world, "b", &info, 0), CN_VERDICT_ACCEPTED);
    assert_int_equal(put_off(&world, "c", &info), 1); // the buffer is full
    assert_int_equal(cn_steering_pause(world.ledger, CN_RUN_PAUSE_ROUNDS), CN_OK);
    assert_int_equal(cn_run_follow_steering(world.run), CN_OK);
    for (int i = 0; i < 5; i++)
        go_on(&world);
    assert_int_equal(put_off(&world, "c", &info), 30);
    assert_int_equal(cn_steering_pause(world.ledger, CN_RUN_PAUSE_NONE), CN_OK);
    assert_int_equal(cn_run_follow_steering(world.run), CN_OK);
    assert_int_equal(send_round(&world, "c", &info, 0), CN_VERDICT_ACCEPTED);
    world_deinit(&world);
}

// Returns what status and the page say of the run, one after the other.
static char *show_all(struct aggregator_world *world)
{
    struct cn_live_state live = {.running = true};
    struct cn_show_source source = world_show_source(world, &live);
    struct cn_buffer page;
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    source.date_ms = 1700000000000;
    cn_buffer_init(&page, CN_SHOW_LIMIT);
    assert_int_equal(
        cn_status_print(world->ledger, &world->job, &live, world_now_ms, false, stream), CN_OK);
    assert_int_equal(cn_show_state(&source, NULL, 0, &page), CN_OK);
    fwrite(page.data, 1, page.size, stream);
    fclose(stream);
    cn_buffer_deinit(&page);
    return text;
}

// Says whether the words are in what people see.
static bool is_said(struct aggregator_world *world, const char *words)
{
    char *text = show_all(world);
    bool said = strstr(text, words) != NULL;
    free(text);
    return said;
}

static void a_group_that_is_late_three_times_is_named_and_an_alert(void **state)
{
    static const char named[] = "its last 3 updates were too late to count: set a larger";
    static const char alert[] = "\"kind\":\"late\",\"group\":\"c\",\"text\":\"its last 3 updates";
    struct aggregator_world world;
    (void)state;
    begin(&world, 2, 0, false);
    for (uint32_t round = 1; round <= 3; round++) {
        struct cn_round_info first = wait_for_round(&world, "c", round);
        cn_roster_serve(world.roster, "c", round - 1);
        assert_false(is_said(&world, named));
        assert_false(is_said(&world, "\"kind\":\"late\""));
        make_versions(&world, round);
        assert_int_equal(send_round(&world, "c", &first, 0), CN_VERDICT_LATE);
    }
    assert_true(is_said(&world, named));
    assert_true(is_said(&world, alert));
    struct cn_round_info info = wait_for_round(&world, "c", 4);
    assert_int_equal(send_round(&world, "c", &info, 0), CN_VERDICT_ACCEPTED);
    assert_false(is_said(&world, named));
    assert_false(is_said(&world, "\"kind\":\"late\""));
    world_deinit(&world);
}

static void expect_metric(struct aggregator_world *world, const char *line)
{
    struct cn_run_state run;
    const struct cn_metrics_source source = world_metrics_source(world, &run);
    struct cn_buffer out;
    cn_buffer_init(&out, 1u << 20);
    assert_int_equal(cn_metrics_write(&source, &out), CN_OK);
    assert_int_equal(cn_buffer_append(&out, "", 1), CN_OK);
    const char *found = strstr((const char *)out.data, "\ncairn_updates");
    if (!strstr((const char *)out.data, line))
        fail_msg("no line '%s' in:%s", line, found ? found : "");
    cn_buffer_deinit(&out);
}

static void metrics_count_stale_and_late_updates(void **state)
{
    struct aggregator_world world;
    (void)state;
    begin(&world, 2, 1, false);
    struct cn_round_info first = wait_for_round(&world, "c", 1);
    expect_metric(&world, "\ncairn_updates_stale_total 0\n");
    make_versions(&world, 1);
    assert_int_equal(send_round(&world, "c", &first, 0), CN_VERDICT_ACCEPTED);
    expect_metric(&world, "\ncairn_updates_stale_total 1\n");
    expect_metric(&world, "\ncairn_updates_behind_total 1\n");
    struct cn_round_info second = wait_for_round(&world, "c", 2);
    assert_int_equal(send_round(&world, "a", &second, 0), CN_VERDICT_ACCEPTED);
    wait_for_round(&world, "a", 3); // version 2 is made of both
    make_versions(&world, 3);
    assert_int_equal(send_round(&world, "c", &second, 0), CN_VERDICT_LATE);
    expect_metric(&world, "\ncairn_updates_total{verdict=\"late\"} 1\n");
    expect_metric(&world, "\ncairn_updates_behind_total 1\n");
    world_deinit(&world);
}

static void stale_updates_count_for_the_root_of_their_age(void **state)
{
    (void)state;
    for (uint32_t s = 0; s <= CN_STALENESS_MAX; s++) {
        // T[s] is 256 / sqrt(1 + s), rounded: (2 T)^2 (1 + s) lies within a half of 512^2.
        uint64_t twice = 2 * cn_stale_factor(s), square = 512ull * 512;
        assert_true((twice - 1) * (twice - 1) * (1 + s) <= square);
        assert_true((twice + 1) * (twice + 1) * (1 + s) >= square);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_members_make_the_same_versions_whatever_fails),
        cmocka_unit_test(two_updates_of_one_base_count_once),
        cmocka_unit_test(a_round_invites_all_groups_that_nobody_drained),
        cmocka_unit_test(a_group_nine_versions_behind_is_late_and_its_next_round_starts),
        cmocka_unit_test(a_full_buffer_waits_for_a_group_that_would_be_too_late),
        cmocka_unit_test(a_group_that_never_delivers_is_not_waited_for_a_third_time),
        cmocka_unit_test(a_deadline_makes_no_version_of_fewer_than_three_updates),
        cmocka_unit_test(a_board_comes_back_seldom_while_the_run_is_paused),
        cmocka_unit_test(a_group_that_is_late_three_times_is_named_and_an_alert),
        cmocka_unit_test(metrics_count_stale_and_late_updates),
        cmocka_unit_test(stale_updates_count_for_the_root_of_their_age),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
