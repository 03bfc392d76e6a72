// Other programs that are run: what they say, and what becomes of those that do not end.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "boards/flash/tool/process.h"

static void a_program_that_ends_is_not_late(void **state)
{
    const char *const argv[] = {"sh", "-c", "echo said; echo why >&2; exit 3", NULL};
    struct cn_process_result result;

    (void)state;
    assert_int_equal(cn_process_run_within(argv, -1, 60000, &result), CN_OK);
    assert_int_equal(result.code, 3);
    assert_false(result.late);
    assert_int_equal(result.out.size, 5);
    assert_memory_equal(result.out.data, "said\n", 5);
    assert_string_equal(cn_process_complaint(&result), "why");
    cn_process_deinit(&result);
}

// What it started holds the ends of its pipes open, and is killed with it.
static void a_program_that_does_not_end_is_killed(void **state)
{
    const char *const argv[] = {"sh", "-c", "echo begun >&2; sleep 1000 & sleep 1000", NULL};
    struct cn_process_result result;

    (void)state;
    assert_int_equal(cn_process_run_within(argv, -1, 300, &result), CN_OK);
    assert_int_equal(result.code, 128 + 9);
    assert_true(result.late);
    assert_string_equal(cn_process_complaint(&result), "it did not answer in time");
    cn_process_deinit(&result);
}

// Comes last, as this program counts as interrupted from then on.
static void after_an_interruption_there_is_time_to_take_things_back(void **state)
{
    const char *const argv[] = {"sh", "-c", "sleep 0.3; echo revoked", NULL};
    struct cn_process_result result;

    (void)state;
    cn_process_catch_signals();
    raise(SIGHUP);
    assert_true(cn_process_interrupted());
    assert_int_equal(cn_process_run_within(argv, -1, 60000, &result), CN_OK);
    assert_int_equal(result.code, 0);
    assert_int_equal(result.out.size, 8);
    cn_process_deinit(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_ends_is_not_late),
        cmocka_unit_test(a_program_that_does_not_end_is_killed),
        cmocka_unit_test(after_an_interruption_there_is_time_to_take_things_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
