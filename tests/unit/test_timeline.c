// A timeline can be read while it is written, and does not fill the disk.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/round/session/timeline.h"

static char path[] = "timeline-XXXXXX";

static int make_file(void **state)
{
    int file = mkstemp(path);

    (void)state;
    return file < 0 ? -1 : close(file);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static long size_of_file(void)
{
    FILE *file = fopen(path, "r");
    long size;

    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    fclose(file);
    return size;
}

static void read_end(char end[64])
{
    FILE *file = fopen(path, "r");
    size_t size;

    assert_non_null(file);
    assert_int_equal(fseek(file, -60, SEEK_END), 0);
    size = fread(end, 1, 63, file);
    end[size] = '\0';
    fclose(file);
}

static void the_file_is_complete_before_it_is_closed(void **state)
{
    const struct cn_timeline_span span = {.name = "apply", .begin_us = 5, .end_us = 9, .number = 3};
    struct cn_timeline *timeline;
    char end[64];

    (void)state;
    assert_int_equal(cn_timeline_open(path, &timeline), CN_OK);
    cn_timeline_name(timeline, 0, "board-1");
    cn_timeline_add(timeline, &span);
    read_end(end);
    assert_non_null(strstr(end, "\"ts\": 5, \"dur\": 4, \"args\": {\"number\": 3}}\n]\n"));
    cn_timeline_add(timeline, &span);
    assert_int_equal(cn_timeline_close(timeline), CN_OK);
    read_end(end);
    assert_non_null(strstr(end, "{\"number\": 3}}\n]\n"));
}

static void a_long_run_does_not_fill_the_disk(void **state)
{
    struct cn_timeline_span span = {.name = "apply", .begin_us = 5, .end_us = 9};
    struct cn_timeline *timeline;
    char end[64];

    (void)state;
    assert_int_equal(cn_timeline_open(path, &timeline), CN_OK);
    for (span.number = 0; span.number < 2000000; span.number++)
        cn_timeline_add(timeline, &span);
    assert_int_equal(cn_timeline_close(timeline), CN_OK);
    assert_in_range(size_of_file(), CN_TIMELINE_MAX, CN_TIMELINE_MAX + 1024);
    read_end(end);
    assert_non_null(strstr(end, "}}\n]\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_is_complete_before_it_is_closed),
        cmocka_unit_test(a_long_run_does_not_fill_the_disk),
    };

    return cmocka_run_group_tests(tests, make_file, remove_file);
}
