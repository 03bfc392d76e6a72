// The error of a board that cannot train, as the aggregator takes and shows it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "aggregator/serve/status.h"
#include "aggregator/serve/status_print.h"
#include "tests/unit/aggregator_world.h"

static void expect_clean(const char *text, const char *wanted)
{
    char cleaned[CN_FAULT_SIZE];

    cn_fault_clean(cleaned, text);
    assert_string_equal(cleaned, wanted);
}

static void hostile_bytes_are_replaced(void **state)
{
    (void)state;
    expect_clean("", "");
    expect_clean("labels.npy: 6 \"classes\" \\", "labels.npy: 6 \"classes\" \\");
    expect_clean("größe 训练 😀", "größe 训练 😀");
    expect_clean("a\x1b[2Jb\nc\x7f", "a?[2Jb?c?");
    expect_clean("a\xc2\x9b"
                 "2J",
                 "a?2J");                                           // a control of the second set
    expect_clean("a\xe2\x80\xae b\xef\xbb\xbf", "a? b?");           // override of direction, mark
    expect_clean("a\xff\xc3", "a??");                               // no UTF-8, an end too early
    expect_clean("a\xc0\xaf\xe0\x80\xaf\xed\xa0\x80", "a????????"); // too long; a surrogate
    expect_clean("a\xf4\x90\x80\x80\xf0\x9f\x98", "a???????");      // beyond the last; cut off
}

static void a_text_is_cut_between_characters(void **state)
{
    char text[2 * CN_FAULT_SIZE] = "", cleaned[CN_FAULT_SIZE];

    (void)state;
    for (size_t i = 0; i + 2 < sizeof(text); i += 2) {
        text[i] = '\xc3'; // "ä"
        text[i + 1] = '\xa4';
    }
    cn_fault_clean(cleaned, text);
    assert_int_equal(strlen(cleaned), CN_FAULT_SIZE - 2); // 239 would end within one
    assert_memory_equal(cleaned, text, CN_FAULT_SIZE - 2);
}

static void an_error_is_news_once_and_ends_with_work(void **state)
{
    struct cn_fault fault = {0};

    (void)state;
    assert_false(cn_fault_note(&fault, "", 1));
    assert_false(cn_fault_end(&fault)); // there was none
    assert_true(cn_fault_note(&fault, "no memory", 2));
    assert_false(cn_fault_end(&fault));         // a request that was under way
    assert_false(cn_fault_note(&fault, "", 3)); // started again: not known yet
    assert_int_equal(fault.told_ms, 2);
    assert_false(cn_fault_note(&fault, "no memory", 4));
    assert_int_equal(fault.told_ms, 4);
    assert_true(cn_fault_note(&fault, "bad labels", 5));
    assert_false(cn_fault_note(&fault, "", 6));
    assert_true(cn_fault_end(&fault));
    assert_int_equal(fault.told_ms, 0);
    assert_true(cn_fault_note(&fault, "bad labels", 7)); // again after it had gone
}

static void say(struct aggregator_world *world, const char *fault)
{
    struct cn_register_request request = {.protocol = {CN_PROTOCOL_MIN, CN_PROTOCOL_MAX},
                                          .update_format = {1, CN_UPDATE_FORMAT_MAX},
                                          .graph_ops = {1, CN_GRAPH_OPS_MAX},
                                          .facts.cpu_count = 1};
    uint8_t bytes[CN_MESSAGE_MAX];
    struct cn_coap_reply reply;
    size_t size;

    snprintf(request.facts.fault, sizeof(request.facts.fault), "%s", fault);
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    world_ask(world, "a", CN_COAP_POST, "reg", bytes, size, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
}

// What `status` prints; the caller frees it.
static char *print(struct aggregator_world *world, bool json)
{
    struct cn_run_state run = {0};
    struct cn_live_state live;
    char path[128], *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    assert_int_equal(cn_status_write(world->directory, world->roster, &run, world_now_ms), CN_OK);
    assert_int_equal(cn_status_read(world->directory, world_now_ms + 20000, &live), CN_OK);
    assert_int_equal(live.board_count, 0); // too old a file says nothing
    cn_status_deinit(&live);
    assert_int_equal(cn_status_read(world->directory, world_now_ms, &live), CN_OK);
    snprintf(path, sizeof(path), "%s/%s", world->directory, CN_STATUS_FILE);
    unlink(path);
    assert_int_equal(cn_status_print(world->ledger, &world->job, &live, world_now_ms, json, stream),
                     CN_OK);
    fclose(stream);
    cn_status_deinit(&live);
    return text;
}

static void expect_status(struct aggregator_world *world, bool json, const char *words, bool there)
{
    char *text = print(world, json);

    if (!strstr(text, words) == there)
        fail_msg("'%s' is %sin:\n%s", words, there ? "not " : "", text);
    free(text);
}

static void status_shows_the_error_until_the_board_looks_at_the_round(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    struct cn_round_info info;

    (void)state;
    assert_non_null(world);
    world_init(world);
    assert_int_equal(world_enroll(world, "a", "a", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    say(world, "y.npy: the label \"6\\\" \xc2\x9b");
    world_now_ms += 20000;
    expect_status(world, false, "error 20 s ago: y.npy: the label \"6\\\" ?", true);
    expect_status(world, true, "\"error_s\":20,\"error\":\"y.npy: the label \\\"6\\\\\\\" ?\"",
                  true);
    say(world, "");
    expect_status(world, false, "y.npy", true);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_int_equal(world_enroll(world, "c", "c", 0), CN_OK);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK); // it is read again
    expect_status(world, false, "y.npy", true);
    assert_true(world_get_round(world, "a", &info));
    expect_status(world, false, "y.npy", false);
    expect_status(world, true, "\"error", false);
    world_deinit(world);
    free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_bytes_are_replaced),
        cmocka_unit_test(a_text_is_cut_between_characters),
        cmocka_unit_test(an_error_is_news_once_and_ends_with_work),
        cmocka_unit_test(status_shows_the_error_until_the_board_looks_at_the_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
