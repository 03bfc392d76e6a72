// Boards after the end of a run: they leave one after the other, and then they count as gone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/serve/metrics.h"
#include "aggregator/show/reason.h"
#include "tests/unit/aggregator_world.h"

#define NOW_MS 1000000

static struct cn_round_view ended = {.end_reason = "all rounds are done"};

static const char *state_of(const struct cn_live_state *live, const struct cn_live_board *heard,
                            char sentence[CN_REASON_SIZE])
{
    static const struct cn_ledger_board board = {.name = "a", .group = "north"};
    const struct cn_reason_facts facts = {.view = &ended, .live = live, .now_ms = NOW_MS};
    struct cn_reason reason = cn_reason_of(&facts, &board, heard);
    cn_reason_text(&reason, NOW_MS, true, sentence);
    return cn_reason_word(reason.kind);
}

static void a_board_that_leaves_after_the_end_is_gone(void **state)
{
    const struct cn_live_state live = {.running = true, .phase = CN_RUN_ENDED, .opened_ms = 1};
    struct cn_live_board heard = {.heard_ms = NOW_MS - CN_REASON_SILENT_MS};
    char sentence[CN_REASON_SIZE];
    (void)state;
    assert_string_equal(state_of(&live, &heard, sentence), "over");
    assert_string_equal(sentence, "the run is over");
    heard.heard_ms--;
    assert_string_equal(state_of(&live, &heard, sentence), "gone");
    assert_string_equal(sentence, "the run is over, and the board is not here");
    heard = (struct cn_live_board){.heard_ms = NOW_MS, .missing_ms = NOW_MS - 10};
    assert_string_equal(state_of(&live, &heard, sentence), "gone");
    assert_string_equal(state_of(&live, NULL, sentence), "gone");
}

static void boards_have_time_to_come_back_to_a_gateway_whose_run_is_over(void **state)
{
    const struct cn_live_state live = {
        .running = true, .phase = CN_RUN_ENDED, .opened_ms = NOW_MS - CN_REASON_SILENT_MS};
    const struct cn_live_state stopped = {.phase = CN_RUN_ENDED, .opened_ms = 1};
    const struct cn_live_board heard = {.heard_ms = 1};
    char sentence[CN_REASON_SIZE];
    (void)state;
    assert_string_equal(state_of(&live, NULL, sentence), "over");
    assert_string_equal(state_of(&stopped, &heard, sentence), "over"); // it hears nobody
}

static void expect(struct aggregator_world *world, bool over, const char *lines)
{
    struct cn_run_state run;
    struct cn_metrics_source source = world_metrics_source(world, &run);
    struct cn_buffer out;
    source.over = over;
    cn_buffer_init(&out, 1u << 20);
    assert_int_equal(cn_metrics_write(&source, &out), CN_OK);
    assert_int_equal(cn_buffer_append(&out, "", 1), CN_OK);
    if (!strstr((const char *)out.data, lines))
        fail_msg("no '%s' in:\n%s", lines, (const char *)out.data);
    cn_buffer_deinit(&out);
}

static void metrics_count_boards_as_gone_when_no_job_goes_on(void **state)
{
    struct aggregator_world world;
    (void)state;
    world_init(&world);
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_enroll(&world, (const char *[]){"a", "b", "c"}[i], "g", 0), CN_OK);
    assert_int_equal(world_start(&world), CN_OK);
    cn_roster_hear(world.roster, "a", world_now_ms);
    cn_roster_hear(world.roster, "b", world_now_ms - CN_REASON_SILENT_MS - 1);
    expect(&world, false,
           "cairn_boards{state=\"live\"} 1\ncairn_boards{state=\"silent\"} 1\n"
           "cairn_boards{state=\"paused\"} 0\ncairn_boards{state=\"failed\"} 0\n"
           "cairn_boards{state=\"never\"} 1\ncairn_boards{state=\"revoked\"} 0\n"
           "cairn_boards{state=\"gone\"} 0\n");
    expect(&world, true,
           "cairn_boards{state=\"live\"} 1\ncairn_boards{state=\"silent\"} 0\n"
           "cairn_boards{state=\"paused\"} 0\ncairn_boards{state=\"failed\"} 0\n"
           "cairn_boards{state=\"never\"} 0\ncairn_boards{state=\"revoked\"} 0\n"
           "cairn_boards{state=\"gone\"} 2\n");
    world_deinit(&world);
}

static void the_last_version_that_only_boards_would_measure_has_no_score(void **state)
{
    struct cn_run_progress progress = {.newest_known = 2, .newest_score = {.known = true}};
    char text[CN_SCORE_LAG];
    (void)state;
    cn_score_lag_text(&progress, 3, true, text);
    assert_string_equal(text,
                        "version 3 has no score: boards measure a version in the round after it");
    cn_score_lag_text(&progress, 3, false, text);
    assert_string_equal(
        text, "version 3 has no score yet: boards measure a version in the round after it");
    cn_score_lag_text(&progress, 2, true, text);
    assert_string_equal(text, "");
    progress.newest_score.central = true;
    cn_score_lag_text(&progress, 3, true, text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_board_that_leaves_after_the_end_is_gone),
        cmocka_unit_test(boards_have_time_to_come_back_to_a_gateway_whose_run_is_over),
        cmocka_unit_test(the_last_version_that_only_boards_would_measure_has_no_score),
        cmocka_unit_test(metrics_count_boards_as_gone_when_no_job_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
