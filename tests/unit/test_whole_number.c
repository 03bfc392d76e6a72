// Whole numbers that people type on a command line.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/whole_number.h"

static void digits_within_the_limits_are_read(void **state)
{
    uint64_t number = 0;

    (void)state;
    assert_true(cn_whole_number_read("7", 7, 7, &number));
    assert_int_equal(number, 7);
    assert_true(cn_whole_number_read("0012", 0, 99, &number));
    assert_int_equal(number, 12);
    assert_true(cn_whole_number_read("18446744073709551615", 0, UINT64_MAX, &number));
    assert_true(number == UINT64_MAX);
}

static void other_text_is_refused(void **state)
{
    static const char *const texts[] = {"",   "-1", "+1", " 1",  "1 ",
                                        "1x", "x",  "1.", "0x1", "18446744073709551616"};
    uint64_t number = 5;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_false(cn_whole_number_read(texts[i], 0, UINT64_MAX, &number));
    assert_false(cn_whole_number_read("3", 4, 9, &number));
    assert_false(cn_whole_number_read("10", 4, 9, &number));
    assert_int_equal(number, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digits_within_the_limits_are_read),
        cmocka_unit_test(other_text_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
