// Metrics: the text format, and the counters of a gateway.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "aggregator/serve/metrics.h"
#include "aggregator/serve/readiness.h"
#include "tests/unit/aggregator_world.h"

#define LIMIT (1u << 22)

static char *finish(struct cn_buffer *out)
{
    assert_int_equal(cn_buffer_append(out, "", 1), CN_OK);
    return (char *)out->data;
}

static void values_and_labels_are_written_as_the_format_says(void **state)
{
    struct cn_buffer out;
    struct cn_metric_text text = {.out = &out};
    const struct cn_metric_label labels[] = {{"board", "a\"b\\c\nd"}, {"group", "lab"}};
    (void)state;
    cn_buffer_init(&out, LIMIT);
    cn_metric_begin(&text, "x_total", "counter", "Some.");
    cn_metric_add(&text, labels, 2, 9007199254740991.0);
    cn_metric_add_by(&text, "k", "", 0.25);
    cn_metric_one(&text, "y", "gauge", "More.", NAN);
    cn_metric_one(&text, "z", "gauge", "Most.", -INFINITY);
    assert_int_equal(text.err, CN_OK);
    assert_string_equal(finish(&out), "# HELP x_total Some.\n# TYPE x_total counter\n"
                                      "x_total{board=\"a\\\"b\\\\c\\nd\",group=\"lab\"} "
                                      "9007199254740991\n"
                                      "x_total{k=\"\"} 0.25\n"
                                      "# HELP y More.\n# TYPE y gauge\ny NaN\n"
                                      "# HELP z Most.\n# TYPE z gauge\nz -Inf\n");
    cn_buffer_deinit(&out);
}

static void a_histogram_counts_what_took_at_most_so_long(void **state)
{
    struct cn_histogram histogram = {.bounds = cn_histogram_work};
    struct cn_buffer out;
    struct cn_metric_text text = {.out = &out};
    (void)state;
    cn_buffer_init(&out, LIMIT);
    cn_histogram_add(&histogram, 0.01); // a bound belongs to its bucket
    cn_histogram_add(&histogram, 0.02);
    cn_histogram_add(&histogram, 4000);
    cn_metric_histogram(&text, "h_seconds", "Time.", &histogram);
    const char *written = finish(&out);
    assert_non_null(strstr(written, "h_seconds_bucket{le=\"0.01\"} 1\n"));
    assert_non_null(strstr(written, "h_seconds_bucket{le=\"0.03\"} 2\n"));
    assert_non_null(strstr(written, "h_seconds_bucket{le=\"3600\"} 2\n"));
    assert_non_null(strstr(written, "h_seconds_bucket{le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(written, "h_seconds_sum 4000.03\nh_seconds_count 3\n"));
    cn_buffer_deinit(&out);
}

static void a_buffer_that_is_full_is_an_error(void **state)
{
    struct cn_buffer out;
    struct cn_metric_text text = {.out = &out};
    (void)state;
    cn_buffer_init(&out, 100);
    for (int i = 0; i < 100; i++)
        cn_metric_one(&text, "y", "gauge", "More.", i);
    assert_int_equal(text.err, CN_ERANGE);
    assert_true(out.size <= 100);
    cn_buffer_deinit(&out);
}

static uint64_t disk_free; // bytes; 0: not known

static char *write_metrics(struct aggregator_world *world, uint32_t board_series,
                           struct cn_buffer *out)
{
    const struct cn_coap_server_stats stats = {
        .sessions = 2, .requests = {[2] = 7, [5] = 1}, .handshakes = {4, 3, 2, 1, 5}};
    struct cn_run_state run;
    struct cn_metrics_source source = world_metrics_source(world, &run);
    source.server = &stats;
    source.run = 0xabc;
    source.version = cn_model_store_newest(world->models)->number;
    source.disk_free = disk_free;
    source.disk_reserve = 1000;
    source.store_up = true;
    source.board_series = board_series;
    cn_buffer_init(out, LIMIT);
    assert_int_equal(cn_metrics_write(&source, out), CN_OK);
    return finish(out);
}

static void expect(const char *written, const char *line)
{
    char whole[160];
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    if (!strstr(written, whole))
        fail_msg("no line '%s' in:\n%s", line, written);
}

static void boards_are_counted_by_state(void **state)
{
    static const struct cn_roster_facts facts = {.cpu_count = 1};
    struct aggregator_world world;
    struct cn_buffer out;
    (void)state;
    world_init(&world);
    for (int i = 1; i <= 5; i++) {
        char name[16];
        snprintf(name, sizeof(name), "board-%d", i);
        assert_int_equal(world_enroll(&world, name, i < 3 ? "a" : "b", 0), CN_OK);
    }
    world_revoke(&world, "board-5");
    assert_int_equal(world_start(&world), CN_OK);
    cn_roster_hear(world.roster, "board-1", world_now_ms);
    cn_roster_note(world.roster, "board-1", &facts);
    cn_roster_hear(world.roster, "board-2", world_now_ms - 120001);
    cn_roster_hear(world.roster, "board-3", world_now_ms);
    cn_roster_blame(world.roster, "board-3", "<img src=x>\nevil 1", 0, world_now_ms);
    const char *written = write_metrics(&world, 4, &out);
    expect(written, "cairn_build_info{version=\"1.2.3\",protocol=\"3\"} 1");
    expect(written, "cairn_run_info{job=\"job\",run=\"0000000000000abc\"} 1");
    expect(written, "cairn_boards{state=\"live\"} 1");
    expect(written, "cairn_boards{state=\"silent\"} 1");
    expect(written, "cairn_boards{state=\"failed\"} 1");
    expect(written, "cairn_boards{state=\"never\"} 1");
    expect(written, "cairn_boards{state=\"revoked\"} 1");
    expect(written, "cairn_groups{state=\"enrolled\"} 2");
    expect(written, "cairn_sessions 2");
    expect(written, "cairn_requests_total{code=\"2\"} 7");
    expect(written, "cairn_requests_total{code=\"4\"} 0");
    expect(written, "cairn_requests_total{code=\"5\"} 1");
    expect(written, "cairn_handshakes_total{result=\"ok\"} 4");
    expect(written, "cairn_handshakes_total{result=\"unknown\"} 3");
    expect(written, "cairn_handshakes_total{result=\"failed\"} 2");
    expect(written, "cairn_handshakes_total{result=\"unfinished\"} 1");
    expect(written, "cairn_handshakes_total{result=\"full\"} 5");
    expect(written, "cairn_board_up{board=\"board-1\",group=\"a\"} 1");
    expect(written, "cairn_board_up{board=\"board-2\",group=\"a\"} 0");
    expect(written, "cairn_board_last_heard_seconds{board=\"board-2\",group=\"a\"} 120.001");
    assert_null(strstr(written, "board-5"));
    assert_null(strstr(written, "evil")); // a board's own words are in no metric
    assert_null(strstr(written, "cairn_disk_free_bytes"));
    cn_buffer_deinit(&out);
    disk_free = 1; // as a full disk is noted
    written = write_metrics(&world, 3, &out);
    disk_free = 0;
    assert_null(strstr(written, "cairn_board_up"));
    expect(written, "cairn_disk_free_bytes 0");
    cn_buffer_deinit(&out);
    world_deinit(&world);
}

static void verdicts_are_counted_by_reason(void **state)
{
    static const char *const boards[] = {"board-a", "board-b"};
    struct aggregator_world world;
    struct cn_buffer out;
    struct cn_round_info info = {0};
    struct cn_upload_status status;
    struct cn_buffer frames[2], other;
    (void)state;
    world_init(&world);
    for (int i = 0; i < 2; i++)
        assert_int_equal(world_enroll(&world, boards[i], i ? "b" : "a", 0), CN_OK);
    assert_int_equal(world_start(&world), CN_OK);
    for (int i = 0; i < 2; i++)
        world_register(&world, boards[i]);
    assert_int_equal(cn_run_tick(world.run, world_now_ms), CN_OK);
    assert_true(world_get_round(&world, boards[0], &info));
    for (int i = 0; i < 2; i++)
        world_make_frame(&world, &info, i ? "b" : "a", 1, &frames[i]);
    world_make_frame(&world, &info, "a", 2, &other);
    assert_true(world_send(&world, boards[0], &info, &frames[0], &status));
    assert_true(world_send(&world, boards[0], &info, &frames[0], &status)); // repeat
    assert_true(world_send(&world, boards[0], &info, &other, &status));
    assert_true(world_send(&world, boards[1], &info, &frames[1], &status));
    for (int i = 0; i < 3; i++) {
        world_now_ms += 3000;
        assert_int_equal(cn_run_tick(world.run, world_now_ms), CN_OK);
    }
    world_make_frame(&world, &info, "b", 3, &out);
    assert_true(world_send(&world, boards[1], &info, &out, &status));
    cn_buffer_deinit(&out);
    const char *written = write_metrics(&world, 200, &out);
    expect(written, "cairn_version 1");
    expect(written, "cairn_updates_total{verdict=\"accepted\"} 2");
    expect(written, "cairn_updates_total{verdict=\"repeat\"} 1");
    expect(written, "cairn_rounds_total{result=\"merged\"} 1");
    expect(written, "cairn_merge_seconds_count 1");
    expect(written, "cairn_accept_commit_seconds_count 2");
    expect(written, "cairn_round_duration_seconds_count 1");
    expect(written, "cairn_updates_rejected_total{reason=\"other_update\"} 2");
    expect(written, "cairn_updates_total{verdict=\"rejected\"} 2");
    cn_buffer_deinit(&out);
    for (int i = 0; i < 2; i++)
        cn_buffer_deinit(&frames[i]);
    cn_buffer_deinit(&other);
    world_deinit(&world);
}

static void readiness_names_each_reason(void **state)
{
    struct cn_readiness readiness = {
        .disk_free = 100u << 20, .disk_reserve = 64u << 20, .word = "quorum", .quorum = 2};
    struct cn_buffer out;
    bool ready;
    (void)state;
    readiness.groups.count = readiness.groups.enrolled = 2;
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(cn_readiness_write(&readiness, &out, &ready), CN_OK);
    assert_true(ready);
    assert_string_equal(finish(&out), "ok\n");
    cn_buffer_deinit(&out);
    readiness.trouble = CN_ENOSPC;
    readiness.disk_free = 10u << 20;
    readiness.groups.count = readiness.groups.enrolled = 1;
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(cn_readiness_write(&readiness, &out, &ready), CN_OK);
    assert_false(ready);
    assert_string_equal(finish(&out), "store: the run waits: the disk is full\n"
                                      "disk: 10 MiB are free, below storage.reserve, 64 MiB\n"
                                      "groups: the quorum is 2 groups and 1 is enrolled\n");
    cn_buffer_deinit(&out);
}

static void groups_that_cannot_be_invited_are_a_reason_until_the_end(void **state)
{
    struct cn_readiness readiness = {
        .word = "quorum",
        .quorum = 2,
        .groups = {.count = 1, .enrolled = 4, .drained = 1, .silent = 2},
    };
    struct cn_buffer out;
    bool ready;
    (void)state;
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(cn_readiness_write(&readiness, &out, &ready), CN_OK);
    assert_false(ready);
    assert_string_equal(finish(&out), "groups: 1 group can be invited, the quorum is 2: 1 drained, "
                                      "2 not heard for 2 min\n");
    cn_buffer_deinit(&out);
    readiness.over = true;
    cn_buffer_init(&out, LIMIT);
    assert_int_equal(cn_readiness_write(&readiness, &out, &ready), CN_OK);
    assert_true(ready);
    cn_buffer_deinit(&out);
}

static void only_groups_that_are_here_and_not_drained_can_be_invited(void **state)
{
    struct aggregator_world world;
    struct cn_invitable groups;
    (void)state;
    world_init(&world);
    assert_int_equal(world_enroll(&world, "a", "a", 0), CN_OK);
    assert_int_equal(world_enroll(&world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(&world), CN_OK);
    uint64_t opened_ms = cn_roster_opened_ms(world.roster);
    cn_invitable_of_roster(world.roster, opened_ms + CN_REASON_SILENT_MS, &groups);
    assert_int_equal(groups.count, 2); // they have the time to come
    uint64_t later_ms = opened_ms + 10 * CN_REASON_SILENT_MS;
    cn_invitable_of_roster(world.roster, later_ms, &groups);
    assert_int_equal(groups.silent, 2);
    cn_roster_hear(world.roster, "a", later_ms);
    cn_roster_hear(world.roster, "b", later_ms);
    cn_invitable_of_roster(world.roster, later_ms, &groups);
    assert_int_equal(groups.count, 2);
    cn_roster_lend(world.roster, "a", true, later_ms);
    assert_int_equal(cn_steering_drain(world.ledger, "b", true), CN_OK);
    cn_roster_expire(world.roster);
    assert_int_equal(cn_roster_refresh(world.roster, NULL, NULL), CN_OK);
    cn_invitable_of_roster(world.roster, later_ms, &groups);
    assert_int_equal(groups.count, 1); // a group that serves another job comes back
    assert_int_equal(groups.drained, 1);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_labels_are_written_as_the_format_says),
        cmocka_unit_test(a_histogram_counts_what_took_at_most_so_long),
        cmocka_unit_test(a_buffer_that_is_full_is_an_error),
        cmocka_unit_test(boards_are_counted_by_state),
        cmocka_unit_test(verdicts_are_counted_by_reason),
        cmocka_unit_test(readiness_names_each_reason),
        cmocka_unit_test(groups_that_cannot_be_invited_are_a_reason_until_the_end),
        cmocka_unit_test(only_groups_that_are_here_and_not_drained_can_be_invited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
