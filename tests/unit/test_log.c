// The lines of the log: their time, their priority, and messages that hold hostile bytes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log_line.h"
#include "runtime/command/log_options.h"

static void assert_line(enum cn_log_format format, const struct cn_log_event *event,
                        const char *wanted)
{
    char line[CN_LOG_LINE_SIZE];
    size_t length = cn_log_write_line(format, event, line);

    assert_int_equal(length, strlen(wanted));
    assert_memory_equal(line, wanted, length);
}

static struct cn_log_event event_at(int64_t unix_ms)
{
    return (struct cn_log_event){.level = CN_LOG_INFO,
                                 .name = "",
                                 .area = "run",
                                 .message = "round 12",
                                 .unix_ms = unix_ms,
                                 .boot_ms = 42017};
}

static void a_line_begins_with_the_time_in_utc(void **state)
{
    const struct cn_log_event event = event_at(1795395723456);

    (void)state;
    assert_line(CN_LOG_TEXT, &event, "2026-11-23T01:02:03.456Z info  run: round 12\n");
}

static void a_clock_that_was_never_set_gives_the_time_since_boot(void **state)
{
    const int64_t never[] = {42017, -1, 0, 1767225599999, INT64_MAX, INT64_MIN};
    const struct cn_log_event set = event_at(1767225600000);

    (void)state;
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        const struct cn_log_event event = event_at(never[i]);

        assert_line(CN_LOG_TEXT, &event, "+42.017s info  run: round 12\n");
    }
    assert_line(CN_LOG_TEXT, &set, "2026-01-01T00:00:00.000Z info  run: round 12\n");
}

static void journald_gets_the_priority_and_no_time(void **state)
{
    struct cn_log_event event = event_at(1795395723456);

    (void)state;
    assert_line(CN_LOG_JOURNAL, &event, "<6>info  run: round 12\n");
    event.level = CN_LOG_ERROR;
    assert_line(CN_LOG_JOURNAL, &event, "<3>error run: round 12\n");
    event.level = CN_LOG_WARN;
    assert_line(CN_LOG_JOURNAL, &event, "<4>warn  run: round 12\n");
    event.level = CN_LOG_DEBUG;
    assert_line(CN_LOG_JOURNAL, &event, "<7>debug run: round 12\n");
}

static void a_process_among_others_says_its_name(void **state)
{
    struct cn_log_event event = event_at(1795395723456);

    (void)state;
    event.name = "board-1.2";
    assert_line(CN_LOG_TEXT, &event, "2026-11-23T01:02:03.456Z info  board-1.2 run: round 12\n");
}

static void no_message_begins_a_line_or_commands_a_terminal(void **state)
{
    struct cn_log_event event = event_at(1795395723456);

    (void)state;
    event.message = "a\n<3>error b\r\x1b[2J\x7f\xc2\x9b\xe2\x80\xae";
    assert_line(CN_LOG_JOURNAL, &event,
                "<6>info  run: a\\u000a<3>error b\\u000d\\u001b[2J\\u007f\\u009b\\u202e\n");
    event.message = "\xc3\xa4 \xe6\x97\xa5 \xf0\x9f\x98\x80"; // UTF-8 of 2, 3 and 4 bytes
    assert_line(CN_LOG_JOURNAL, &event, "<6>info  run: \xc3\xa4 \xe6\x97\xa5 \xf0\x9f\x98\x80\n");
    event.message = "\xff \xc0\x80 \xed\xa0\x80 \xf8\x90\x80\x80 \xe6\x97"; // none is UTF-8
    assert_line(CN_LOG_JOURNAL, &event,
                "<6>info  run: \\xff \\xc0\\x80 \\xed\\xa0\\x80 \\xf8\\x90\\x80\\x80 \\xe6\\x97\n");
}

static void an_object_is_closed_whatever_the_message_holds(void **state)
{
    struct cn_log_event event = event_at(1795395723456);

    (void)state;
    assert_line(CN_LOG_JSON, &event,
                "{\"time\":\"2026-11-23T01:02:03.456Z\",\"level\":\"info\",\"area\":\"run\","
                "\"message\":\"round 12\"}\n");
    event.unix_ms = 0;
    event.name = "board-1.2";
    event.message = "a \"b\" \\ \n\x1b\xff\xc3\xa4";
    assert_line(CN_LOG_JSON, &event,
                "{\"time\":\"+42.017s\",\"level\":\"info\",\"name\":\"board-1.2\",\"area\":\"run\","
                "\"message\":\"a \\\"b\\\" \\\\ \\u000a\\u001b\\ufffd\xc3\xa4\"}\n");
}

static void a_long_object_is_closed(void **state)
{
    static char message[2000];
    struct cn_log_event event = event_at(1795395723456);
    char line[CN_LOG_LINE_SIZE];

    (void)state;
    event.message = message;
    for (size_t size = 0; size < sizeof(message) - 1; size++) {
        size_t length, escapes = 0;

        message[size] = "\"\\\n\xffx"[size % 5];
        length = cn_log_write_line(CN_LOG_JSON, &event, line);
        assert_in_range(length, 1, CN_LOG_LINE_SIZE);
        assert_memory_equal(line + length - 3, "\"}\n", 3);
        while (line[length - 4 - escapes] == '\\')
            escapes++;
        assert_int_equal(escapes % 2, 0); // the last quote is not escaped
    }
}

static void a_long_message_is_cut_between_characters(void **state)
{
    static char message[4000];
    struct cn_log_event event = event_at(1795395723456);
    char line[CN_LOG_LINE_SIZE];

    (void)state;
    event.message = message;
    for (size_t size = 0; size < sizeof(message) - 3; size += 2) {
        size_t length;

        memcpy(message + size, size % 3 ? "\xc3\xa4" : "\nx", 3);
        length = cn_log_write_line(CN_LOG_TEXT, &event, line);
        assert_in_range(length, 1, CN_LOG_LINE_SIZE);
        assert_int_equal(line[length - 1], '\n');
        assert_null(memchr(line, '\n', length - 1));
        assert_int_not_equal((unsigned char)line[length - 2], 0xc3);
    }
}

static void other_streams_than_journalds_get_text(void **state)
{
    (void)state;
    assert_int_equal(setenv("JOURNAL_STREAM", "1:2", 1), 0);
    assert_int_equal(cn_log_find_format(), CN_LOG_TEXT);
    assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
    assert_int_equal(cn_log_find_format(), CN_LOG_TEXT);
}

static void an_area_may_have_a_level_of_its_own(void **state)
{
    char list[] = "--log-level=error,run=debug,spool=warn", other[] = "--log-level",
         bad[] = "run=x";
    char long_name[] = "an-area-with-a-name-that-is-too-long=info",
         format[] = "--log-format=journal";
    char *wanted[] = {"program", list, format, "left", NULL};
    char *wrong[] = {"program", other, bad, NULL};
    int count = 4;

    (void)state;
    assert_int_equal(cn_log_options_take(&count, wanted), 0);
    assert_int_equal(count, 2);
    assert_string_equal(wanted[1], "left");
    assert_true(cn_log_is_written(CN_LOG_DEBUG, "run"));
    assert_false(cn_log_is_written(CN_LOG_INFO, "spool"));
    assert_true(cn_log_is_written(CN_LOG_WARN, "spool"));
    assert_false(cn_log_is_written(CN_LOG_WARN, "node"));
    assert_true(cn_log_is_written(CN_LOG_ERROR, "node"));
    count = 3;
    assert_int_equal(cn_log_options_take(&count, wrong), -1);
    wrong[2] = long_name;
    count = 3;
    assert_int_equal(cn_log_options_take(&count, wrong), -1);
    for (int i = 0; i < CN_LOG_AREAS + 2; i++) {
        char name[16];

        snprintf(name, sizeof(name), "a%d", i);
        assert_int_equal(cn_log_set_area_level(name, CN_LOG_INFO),
                         i < CN_LOG_AREAS - 2 ? CN_OK : CN_ERANGE);
    }
    cn_log_set_level(CN_LOG_INFO);
    cn_log_set_format(CN_LOG_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_begins_with_the_time_in_utc),
        cmocka_unit_test(a_clock_that_was_never_set_gives_the_time_since_boot),
        cmocka_unit_test(journald_gets_the_priority_and_no_time),
        cmocka_unit_test(a_process_among_others_says_its_name),
        cmocka_unit_test(no_message_begins_a_line_or_commands_a_terminal),
        cmocka_unit_test(an_object_is_closed_whatever_the_message_holds),
        cmocka_unit_test(a_long_object_is_closed),
        cmocka_unit_test(a_long_message_is_cut_between_characters),
        cmocka_unit_test(other_streams_than_journalds_get_text),
        cmocka_unit_test(an_area_may_have_a_level_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
