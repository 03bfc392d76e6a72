// Why a board may be slow, from what its sensors read.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <math.h>

#include "runtime/round/upkeep/slow_reason.h"

static void expect(const struct cn_reading *reading, const char *wanted)
{
    char text[80];

    // As it travels.
    cn_slow_reason_text(cn_slow_reason_unpack(cn_slow_reason_pack(cn_slow_reason_judge(reading))),
                        text, sizeof(text));
    assert_string_equal(text, wanted);
}

static void each_reason_is_named_with_its_number(void **state)
{
    (void)state;
    expect(&(struct cn_reading){0}, "no sensor says why");
    expect(&(struct cn_reading){.throttled = true}, "throttled by its system");
    expect(
        &(struct cn_reading){.throttled = true, .has_temperature = true, .temperature_mc = 84700},
        "throttled at 85 C");
    expect(&(struct cn_reading){.has_clock = true, .clock = 0.6},
           "held at 60 % of its clock by its power mode");
    expect(&(struct cn_reading){.on_battery = true, .battery = 0.34}, "on battery, 34 % left");
    expect(&(struct cn_reading){.has_others = true, .others = 0.5},
           "other programs use 50 % of its processors");
}

static void what_weighs_more_is_named_first(void **state)
{
    struct cn_reading reading = {.throttled = true,
                                 .has_clock = true,
                                 .clock = 0.5,
                                 .on_battery = true,
                                 .battery = 1,
                                 .has_others = true,
                                 .others = 0.9};

    (void)state;
    assert_int_equal(cn_slow_reason_judge(&reading).reason, CN_SLOW_THROTTLED);
    reading.throttled = false;
    assert_int_equal(cn_slow_reason_judge(&reading).reason, CN_SLOW_CLOCK);
    reading.clock = 1;
    assert_int_equal(cn_slow_reason_judge(&reading).reason, CN_SLOW_BATTERY);
    reading.on_battery = false;
    assert_int_equal(cn_slow_reason_judge(&reading).reason, CN_SLOW_LOAD);
    reading.others = 0.1;
    assert_int_equal(cn_slow_reason_judge(&reading).reason, CN_SLOW_UNKNOWN);
}

static void a_number_from_another_board_that_is_none_is_unknown(void **state)
{
    const float bad[] = {-1, NAN, INFINITY, 1e9F, (float)(CN_SLOW_REASONS * 1024)};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(cn_slow_reason_unpack(bad[i]).reason, CN_SLOW_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reason_is_named_with_its_number),
        cmocka_unit_test(what_weighs_more_is_named_first),
        cmocka_unit_test(a_number_from_another_board_that_is_none_is_unknown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
