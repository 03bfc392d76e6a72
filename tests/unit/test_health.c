// Health reports of a board: the message, when it is sent, and how a gateway uses it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "aggregator/roster/last_error.h"
#include "aggregator/serve/metrics.h"
#include "aggregator/serve/status.h"
#include "aggregator/show/show.h"
#include "runtime/round/node/node_health.h"
#include "runtime/round/node/node_rest.h"
#include "tests/unit/aggregator_world.h"

static void the_largest_report_is_small_and_survives_a_round_trip(void **state)
{
    struct cn_health sent = {CN_HEALTH_FAILED, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
                             UINT32_MAX,       UINT32_MAX, UINT32_MAX, UINT32_MAX, "",
                             UINT32_MAX,       UINT32_MAX, UINT32_MAX, UINT32_MAX, ""};
    struct cn_health taken;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    (void)state;
    memset(sent.error, 'e', sizeof(sent.error) - 1);
    assert_int_equal(cn_message_put_health(&sent, bytes, &size), CN_OK);
    assert_in_range(size, 150, CN_HEALTH_MESSAGE_MAX);
    assert_int_equal(cn_message_get_health(bytes, size, &taken), CN_OK);
    assert_memory_equal(&taken, &sent, sizeof(sent));
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(cn_message_get_health(bytes, cut, &taken), CN_EFORMAT);
    sent.error[0] = '\0'; // beside an error there is no text about resting
    sent.error_code = 0;
    memset(sent.rest, 'r', sizeof(sent.rest) - 1);
    sent.samples = sent.samples_run = UINT32_MAX; // nor a number of samples
    assert_int_equal(cn_message_put_health(&sent, bytes, &size), CN_OK);
    assert_in_range(size, 150, CN_HEALTH_MESSAGE_MAX);
    assert_int_equal(cn_message_get_health(bytes, size, &taken), CN_OK);
    assert_string_equal(taken.rest, sent.rest);
    assert_int_equal(taken.samples, UINT32_MAX);
    assert_int_equal(taken.samples_run, UINT32_MAX);
    for (sent.missing_count = 0; sent.missing_count < CN_HEALTH_MISSING_LEAST; sent.missing_count++)
        sent.missing[sent.missing_count] = (struct cn_member_sign){UINT32_MAX, UINT32_MAX};
    sent.flags = 0xfff; // all that there are
    assert_int_equal(cn_message_put_health(&sent, bytes, &size), CN_OK);
    sent.rest[CN_HEALTH_TEXT_SHORT] = '\0'; // a shorter text leaves room for more members
    for (; sent.missing_count < CN_HEALTH_MISSING_MAX; sent.missing_count++)
        sent.missing[sent.missing_count] = (struct cn_member_sign){7, 3600};
    assert_int_equal(cn_message_put_health(&sent, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_health(bytes, size, &taken), CN_OK);
    assert_int_equal(taken.missing_count, CN_HEALTH_MISSING_MAX);
    assert_memory_equal(taken.missing, sent.missing, sizeof(sent.missing));
    sent.missing_count = 0; // without texts there is room for a chain
    sent.rest[0] = '\0';
    sent.part = sent.parts = sent.chain = sent.chains = sent.bubble = UINT32_MAX;
    assert_int_equal(cn_message_put_health(&sent, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_health(bytes, size, &taken), CN_OK);
    assert_int_equal(taken.bubble, UINT32_MAX);
    sent = (struct cn_health){.state = CN_HEALTH_IDLE, .seq = 1};
    assert_int_equal(cn_message_put_health(&sent, bytes, &size), CN_OK);
    assert_int_equal(size, 11); // what is not known is left out
}

// --- on the board ---

static struct cn_node_rest judge(const struct cn_settings *settings, uint8_t battery,
                                 uint32_t left_kib)
{
    const struct cn_board_facts facts = {
        .memory_mib = 1024, .battery = battery, .left_kib = left_kib};
    struct cn_node_rest rest;
    cn_node_rest_judge(&settings->job, settings, &facts, 1, &rest);
    return rest;
}

static void a_board_rests_only_for_its_charge_and_bytes(void **state)
{
    struct cn_settings *settings = calloc(1, sizeof(*settings));
    struct cn_parallel *parallel = &settings->job.parallel;
    (void)state;
    assert_non_null(settings);
    snprintf(settings->name, sizeof(settings->name), "b");
    snprintf(parallel->sets, sizeof(parallel->sets),
             "charged: battery >= 40 and bytes >= 1 MiB; big: memory >= 2 GiB; near: link >= 1 "
             "Mbit/s and battery >= 40");
    assert_int_equal(judge(settings, 20, UINT32_MAX).flag, 0); // all train
    snprintf(parallel->train, sizeof(parallel->train), "charged");
    assert_int_equal(judge(settings, 40, UINT32_MAX).flag, 0);
    assert_int_equal(judge(settings, 20, UINT32_MAX).flag, CN_HEALTH_RESTS);
    assert_string_equal(judge(settings, 20, UINT32_MAX).text,
                        "battery 20 %; the set charged wants battery >= 40 and bytes >= 1 MiB");
    assert_int_equal(judge(settings, 100, 800).flag, CN_HEALTH_RESTS);
    assert_non_null(strstr(judge(settings, 100, 800).text, "battery 100 %, 800 KiB left today;"));
    snprintf(parallel->train, sizeof(parallel->train), "big");
    assert_int_equal(judge(settings, 20, UINT32_MAX).flag, CN_HEALTH_LOOKS_ON);
    snprintf(parallel->train, sizeof(parallel->train), "big charged");
    assert_int_equal(judge(settings, 20, UINT32_MAX).flag, CN_HEALTH_RESTS);
    snprintf(parallel->train, sizeof(parallel->train), "near"); // the link is not known
    assert_int_equal(judge(settings, 20, UINT32_MAX).flag, CN_HEALTH_LOOKS_ON);
    snprintf(settings->group.sets, sizeof(settings->group.sets), "near: battery >= 10");
    assert_int_equal(judge(settings, 20, UINT32_MAX).flag, 0);
    free(settings);
}

struct board {
    struct cn_upkeep care;
    struct cn_status_file status;
    struct cn_node_health health;
};

static bool is_due(struct board *board, const char *fault, uint64_t now_ms)
{
    cn_node_health_take(&board->health, &board->status, fault, CN_ENOSPC);
    return cn_node_health_due(&board->health, 7, now_ms);
}

static void a_change_is_told_after_five_seconds_and_all_else_each_minute(void **state)
{
    struct board board = {.status.care = &board.care};
    uint64_t now_ms = 1000000, before_ms;
    uint32_t shortest = UINT32_MAX, longest = 0;
    (void)state;
    board.status.progress.size = 1;
    board.status.progress.phase = CN_PHASE_TRAIN;
    assert_true(is_due(&board, "", now_ms));
    assert_int_equal(board.health.told.state, CN_HEALTH_TRAINING);
    board.care.care.pause = CN_PAUSE_HEAT;
    assert_false(is_due(&board, "", now_ms + 4999));
    assert_true(is_due(&board, "", now_ms += 5000));
    assert_int_equal(board.health.told.state, CN_HEALTH_PAUSED);
    assert_int_equal(board.health.told.flags >> CN_HEALTH_PAUSE_SHIFT, CN_PAUSE_HEAT);
    assert_false(is_due(&board, "", now_ms + 6000));
    assert_true(is_due(&board, "the disk is full", now_ms += 6000));
    assert_int_equal(board.health.told.error_code, -CN_ENOSPC);
    board.status.progress.step++; // steps, temperature and power alone are no change
    board.care.reading = (struct cn_reading){.has_temperature = true, .temperature_mc = 61500};
    assert_false(is_due(&board, "the disk is full", now_ms + 40000));
    for (int i = 0; i < 200; i++) {
        before_ms = now_ms;
        while (!is_due(&board, "the disk is full", now_ms))
            now_ms += 100;
        if (i == 0)
            continue;
        shortest = now_ms - before_ms < shortest ? (uint32_t)(now_ms - before_ms) : shortest;
        longest = now_ms - before_ms > longest ? (uint32_t)(now_ms - before_ms) : longest;
    }
    assert_in_range(shortest, 48000, 55000);
    assert_in_range(longest, 65000, 72100);
    assert_int_equal(board.health.told.temperature_mk, 61500 + CN_HEALTH_ZERO_CELSIUS);
    assert_int_equal(board.health.told.seq, 203);
}

static void a_board_that_was_registered_again_reports_soon(void **state)
{
    struct board board = {.status.care = &board.care};
    (void)state;
    assert_true(is_due(&board, "", 1000000));
    assert_false(is_due(&board, "", 1006000));
    board.health.registered = true;
    assert_false(is_due(&board, "", 1004999));
    assert_true(is_due(&board, "", 1006000));
    assert_false(is_due(&board, "", 1012000));
}

static void the_samples_of_another_run_are_told_with_it_after_five_seconds(void **state)
{
    struct board board = {.status.care = &board.care};
    struct cn_progress *progress = &board.status.progress;
    uint64_t now_ms = 1000000;
    (void)state;
    progress->run = 0x123456789a;
    assert_true(is_due(&board, "", now_ms));
    assert_int_equal(board.health.told.samples_run, 0x3456789a);
    assert_int_equal(board.health.told.samples, 0);
    progress->samples = 500;
    assert_true(is_due(&board, "", now_ms += 5000));
    assert_int_equal(board.health.told.samples_run, 0x3456789a);
    progress->run++; // the set may have as many samples in another job
    assert_false(is_due(&board, "", now_ms + 4999));
    assert_true(is_due(&board, "", now_ms += 5000));
    assert_int_equal(board.health.told.samples_run, 0x3456789b);
    assert_true(is_due(&board, "the disk is full", now_ms += 5000));
    assert_int_equal(board.health.told.samples, 0); // of this run alone
    assert_int_equal(board.health.told.samples_run, 0x3456789b);
}

static void reports_are_left_out_where_bytes_cost_or_are_almost_used_up(void **state)
{
    const struct cn_traffic_rules day = {.day_bytes = 1000};
    const struct cn_traffic_rules hours = {
        .metered_from_ms = 10, .metered_to_ms = 20, .metered_bytes = 500};
    struct cn_traffic traffic = {.used = 899};
    (void)state;
    assert_false(cn_traffic_is_scarce(&traffic, &day, 0));
    traffic.used = 900;
    assert_true(cn_traffic_is_scarce(&traffic, &day, 0));
    assert_false(cn_traffic_is_scarce(&traffic, &hours, 9));
    assert_true(cn_traffic_is_scarce(&traffic, &hours, 10)); // though updates go through
    assert_true(cn_traffic_is_scarce(&traffic, &hours, CN_PAUSE_NO_CLOCK));
}

// --- on the gateway ---

static int open_world(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    world_init(world);
    assert_int_equal(world_enroll(world, "a1", "a", 30), CN_OK);
    assert_int_equal(world_enroll(world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    *state = world;
    return 0;
}

static unsigned report(struct aggregator_world *world, const char *board,
                       const struct cn_health *health)
{
    struct cn_coap_reply reply;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    assert_int_equal(cn_message_put_health(health, bytes, &size), CN_OK);
    world_ask(world, board, CN_COAP_POST, "h", bytes, size, &reply);
    return (unsigned)reply.code;
}

static char *show(struct aggregator_world *world, struct cn_live_state *live, const char *board,
                  struct cn_buffer *out)
{
    struct cn_run_state run;
    cn_run_get_state(world->run, world_now_ms, &run);
    assert_int_equal(cn_status_gather(world->roster, &run, live), CN_OK);
    struct cn_show_source source = world_show_source(world, live);
    source.date_ms = 1800000000000;
    cn_buffer_init(out, CN_SHOW_LIMIT);
    assert_int_equal(cn_show_board(&source, board, out), CN_OK);
    assert_int_equal(cn_buffer_append(out, "", 1), CN_OK);
    return (char *)out->data;
}

static void a_report_is_shown_and_keeps_no_group_in_the_round(void **state)
{
    const struct cn_health said = {.state = CN_HEALTH_PAUSED,
                                   .round = 3,
                                   .step = 12,
                                   .steps = 50,
                                   .temperature_mk = CN_HEALTH_ZERO_CELSIUS - 4500,
                                   .power_mw = 9250,
                                   .centisamples = 31250,
                                   .flags = CN_HEALTH_THROTTLED | CN_PAUSE_HEAT
                                                                      << CN_HEALTH_PAUSE_SHIFT,
                                   .seq = 4,
                                   .resident_mib = 88,
                                   .part = 2,
                                   .parts = 3,
                                   .chain = 1,
                                   .chains = 2,
                                   .bubble = 125};
    struct aggregator_world *world = *state;
    struct cn_live_state live = {0};
    struct cn_buffer out;
    assert_int_equal(report(world, "a1", &said), CN_COAP_UNAUTHORIZED); // not registered
    assert_int_equal(report(world, "nobody", &said), CN_COAP_UNAUTHORIZED);
    world_register(world, "a1");
    uint64_t group_ms = cn_roster_find_group(world->roster, "a")->heard_ms;
    world_now_ms += 100000;
    assert_int_equal(report(world, "a1", &said), CN_COAP_CHANGED);
    assert_int_equal(cn_roster_find_group(world->roster, "a")->heard_ms, group_ms);
    assert_int_equal(cn_roster_sign_ms(cn_roster_find(world->roster, "a1")), world_now_ms);
    const char *text = show(world, &live, "a1", &out);
    assert_non_null(strstr(text, "\"state\":\"paused\",\"why\":\"it pauses: too hot\""));
    assert_non_null(strstr(text, "\"state\":\"paused\",\"pause\":\"heat\",\"round\":3,\"step\":12,"
                                 "\"steps\":50,\"temperature_c\":-4.5,\"power_w\":9.25,"
                                 "\"samples_per_s\":312.5,\"throttled\":true,\"battery\":false,"
                                 "\"resident_mib\":88,\"chain\":{\"part\":2,\"parts\":3,"
                                 "\"chain\":1,\"chains\":2,\"bubble\":0.125}}"));
    cn_buffer_deinit(&out);
    cn_status_deinit(&live);
    world_now_ms += CN_HEALTH_FRESH_MS + 1; // what was said long ago says nothing about now
    assert_non_null(strstr(show(world, &live, "a1", &out), "\"state\":\"silent\""));
    cn_buffer_deinit(&out);
    cn_status_deinit(&live);
}

static void reports_that_come_too_fast_or_lie_change_nothing(void **state)
{
    struct cn_health said = {.state = CN_HEALTH_TRAINING, .step = 1};
    struct aggregator_world *world = *state;
    struct cn_coap_reply reply;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    world_register(world, "a1");
    const struct cn_board_health *kept = &cn_roster_find(world->roster, "a1")->health;
    assert_int_equal(report(world, "a1", &said), CN_COAP_CHANGED);
    for (int i = 0; i < 1000; i++) {
        said.step = 99;
        assert_int_equal(report(world, "a1", &said), CN_COAP_CHANGED);
    }
    assert_int_equal(kept->said.step, 1);
    world_now_ms += CN_HEALTH_SHORTEST_MS;
    said = (struct cn_health){.state = 200, .flags = UINT32_MAX, .temperature_mk = 1};
    assert_int_equal(report(world, "a1", &said), CN_COAP_CHANGED);
    assert_string_equal(cn_board_health_word(kept), "unknown");
    assert_string_equal(cn_board_health_pause_text(kept), "");
    assert_int_equal(cn_message_put_health(&said, bytes, &size), CN_OK);
    memset(bytes + size, 0, CN_HEALTH_MESSAGE_MAX - size + 1);
    world_ask(world, "a1", CN_COAP_POST, "h", bytes, CN_HEALTH_MESSAGE_MAX + 1, &reply);
    assert_int_equal(reply.code, CN_COAP_BAD_REQUEST);
    world_ask(world, "a1", CN_COAP_POST, "h", bytes, size - 1, &reply);
    assert_int_equal(reply.code, CN_COAP_BAD_REQUEST);
}

static void the_last_error_is_there_after_a_restart(void **state)
{
    struct cn_health said = {.state = CN_HEALTH_FAILED,
                             .error_code = 4,
                             .error = "labels.npy: 12 rows, <b>500</b> expected"};
    struct aggregator_world *world = *state;
    struct cn_live_state live = {0};
    struct cn_last_error error;
    struct cn_buffer out;
    world_register(world, "a1");
    assert_int_equal(report(world, "a1", &said), CN_COAP_CHANGED);
    assert_int_equal(cn_roster_store_errors(world->roster, world_now_ms), CN_OK);
    for (int i = 0; i < 100; i++) { // a board with ever other errors costs few writes
        snprintf(said.error, sizeof(said.error), "error %d", i);
        world_now_ms += 100;
        (void)report(world, "a1", &said);
        assert_int_equal(cn_roster_store_errors(world->roster, world_now_ms), CN_OK);
    }
    assert_int_equal(cn_last_error_find(world->ledger, "a1", &error), CN_OK);
    assert_int_equal(error.count, 1);
    world_now_ms += CN_ROSTER_BOARD_STORE_MS;
    assert_int_equal(cn_roster_store_errors(world->roster, world_now_ms), CN_OK);
    assert_int_equal(cn_last_error_find(world->ledger, "a1", &error), CN_OK);
    assert_int_equal(error.count, 2);
    world_stop(world);
    assert_int_equal(world_start(world), CN_OK);
    assert_int_equal(cn_last_error_find(world->ledger, "a1", &error), CN_OK);
    assert_int_equal(error.code, 4);
    assert_non_null(strstr(error.text, "error "));
    assert_true(error.date_ms > 1600000000000);
    assert_int_equal(cn_last_error_find(world->ledger, "b", &error), CN_ENOTFOUND);
    assert_non_null(strstr(show(world, &live, "a1", &out), "\"last_error\":{\"text\":\"error "));
    cn_buffer_deinit(&out);
    cn_status_deinit(&live);
}

static void what_was_said_passes_through_the_file_of_status(void **state)
{
    const struct cn_health said = {.state = CN_HEALTH_TRAINING,
                                   .round = 2,
                                   .step = 7,
                                   .steps = 9,
                                   .temperature_mk = 300000,
                                   .error = "what",
                                   .flags = CN_HEALTH_THROTTLED,
                                   .seq = 1};
    struct aggregator_world *world = *state;
    struct cn_live_state live = {0};
    struct cn_run_state run;
    char path[128];
    world_register(world, "a1");
    assert_int_equal(report(world, "a1", &said), CN_COAP_CHANGED);
    cn_run_get_state(world->run, world_now_ms, &run);
    assert_int_equal(cn_status_write(world->directory, world->roster, &run, world_now_ms), CN_OK);
    assert_int_equal(cn_status_read(world->directory, world_now_ms, &live), CN_OK);
    assert_int_equal(live.board_count, 1);
    assert_memory_equal(&live.boards[0].health.said, &said, sizeof(said));
    assert_int_equal(live.boards[0].health.told_ms, world_now_ms);
    cn_status_deinit(&live);
    snprintf(path, sizeof(path), "%s/%s", world->directory, CN_STATUS_FILE);
    unlink(path);
}

#define WORLD_TEST(test) cmocka_unit_test_setup_teardown(test, open_world, world_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_board_rests_only_for_its_charge_and_bytes),
        cmocka_unit_test(the_largest_report_is_small_and_survives_a_round_trip),
        cmocka_unit_test(a_change_is_told_after_five_seconds_and_all_else_each_minute),
        cmocka_unit_test(a_board_that_was_registered_again_reports_soon),
        cmocka_unit_test(the_samples_of_another_run_are_told_with_it_after_five_seconds),
        cmocka_unit_test(reports_are_left_out_where_bytes_cost_or_are_almost_used_up),
        WORLD_TEST(a_report_is_shown_and_keeps_no_group_in_the_round),
        WORLD_TEST(reports_that_come_too_fast_or_lie_change_nothing),
        WORLD_TEST(the_last_error_is_there_after_a_restart),
        WORLD_TEST(what_was_said_passes_through_the_file_of_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
