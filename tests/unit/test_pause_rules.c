// When a board pauses, and when it goes on.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/round/upkeep/pause_rules.h"

#define NOON (UINT64_C(12) * 3600000)
#define HOUR UINT64_C(3600000)

static struct cn_reading at_temperature(int32_t temperature_mc)
{
    return (struct cn_reading){.has_temperature = true, .temperature_mc = temperature_mc};
}

// Decides once a second for duration_ms, beginning at *now_ms. Returns the last decision.
static enum cn_pause keep(struct cn_pause_state *care, const struct cn_pause_rules *rules,
                          const struct cn_reading *reading, uint64_t *now_ms, uint64_t duration_ms)
{
    enum cn_pause pause = care->pause;

    for (uint64_t passed = 0; passed < duration_ms; passed += 1000) {
        *now_ms += 1000;
        pause = cn_pause_decide(care, rules, reading, *now_ms, NOON);
    }
    return pause;
}

static void heat_pauses_at_one_limit_and_resumes_at_the_other(void **state)
{
    const struct cn_pause_rules rules = {.pause_above_mc = 88000, .resume_below_mc = 80000};
    const int32_t temperatures[] = {70000, 87999, 88000, 85000, 80001, 80000, 87000};
    const enum cn_pause expected[] = {CN_PAUSE_NONE, CN_PAUSE_NONE, CN_PAUSE_HEAT, CN_PAUSE_HEAT,
                                      CN_PAUSE_HEAT, CN_PAUSE_NONE, CN_PAUSE_NONE};
    struct cn_pause_state care = {0};

    (void)state;
    for (size_t i = 0; i < 7; i++) {
        struct cn_reading reading = at_temperature(temperatures[i]);

        assert_int_equal(cn_pause_decide(&care, &rules, &reading, 1000 * (i + 1), NOON),
                         expected[i]);
    }
}

static void a_sensor_that_vanishes_stops_nothing_for_long(void **state)
{
    const struct cn_pause_rules rules = {.pause_above_mc = 88000, .resume_below_mc = 80000};
    struct cn_reading hot = at_temperature(90000), nothing = {0};
    struct cn_pause_state care = {0};
    uint64_t now_ms = 1000;

    (void)state;
    assert_int_equal(keep(&care, &rules, &hot, &now_ms, 1000), CN_PAUSE_HEAT);
    assert_int_equal(keep(&care, &rules, &nothing, &now_ms, 300000), CN_PAUSE_HEAT);
    assert_int_equal(keep(&care, &rules, &nothing, &now_ms, 301000), CN_PAUSE_NONE);
    assert_int_equal(keep(&care, &rules, &hot, &now_ms, 1000), CN_PAUSE_HEAT);
}

static void a_sensor_that_sticks_is_not_believed_for_ever(void **state)
{
    const struct cn_pause_rules rules = {.pause_above_mc = 88000, .resume_below_mc = 80000};
    struct cn_reading stuck = at_temperature(90000), alive = at_temperature(90001);
    struct cn_pause_state care = {0};
    uint64_t now_ms = 1000;

    (void)state;
    assert_int_equal(keep(&care, &rules, &stuck, &now_ms, 1700000), CN_PAUSE_HEAT);
    assert_int_equal(keep(&care, &rules, &stuck, &now_ms, 200000), CN_PAUSE_NONE);
    assert_int_equal(keep(&care, &rules, &alive, &now_ms, 1000), CN_PAUSE_HEAT);
}

static void power_pauses_after_a_while_and_for_a_while(void **state)
{
    const struct cn_pause_rules rules = {.budget_mw = 15000};
    struct cn_reading over = {.has_power = true, .power_mw = 15001};
    struct cn_reading under = {.has_power = true, .power_mw = 6000};
    struct cn_pause_state care = {0};
    uint64_t now_ms = 1000;

    (void)state;
    assert_int_equal(keep(&care, &rules, &over, &now_ms, 10000), CN_PAUSE_NONE);
    assert_int_equal(keep(&care, &rules, &over, &now_ms, 1000), CN_PAUSE_POWER);
    assert_int_equal(keep(&care, &rules, &under, &now_ms, 59000), CN_PAUSE_POWER);
    assert_int_equal(keep(&care, &rules, &under, &now_ms, 1000), CN_PAUSE_NONE);
    // One peak is no reason.
    assert_int_equal(keep(&care, &rules, &over, &now_ms, 5000), CN_PAUSE_NONE);
    assert_int_equal(keep(&care, &rules, &under, &now_ms, 1000), CN_PAUSE_NONE);
    assert_int_equal(keep(&care, &rules, &over, &now_ms, 9000), CN_PAUSE_NONE);
}

static void other_programs_come_first(void **state)
{
    const struct cn_pause_rules rules = {.others_max = 0.2};
    struct cn_reading busy = {.has_others = true, .others = 0.5};
    struct cn_reading idle = {.has_others = true, .others = 0.1};
    struct cn_pause_state care = {0};
    uint64_t now_ms = 1000;

    (void)state;
    assert_int_equal(keep(&care, &rules, &busy, &now_ms, 12000), CN_PAUSE_BUSY);
    assert_int_equal(keep(&care, &rules, &idle, &now_ms, 60000), CN_PAUSE_NONE);
}

static void a_window_may_go_over_midnight(void **state)
{
    const struct cn_pause_rules night = {.window_from_ms = 22 * HOUR, .window_to_ms = 6 * HOUR};
    const struct cn_pause_rules day = {.window_from_ms = 6 * HOUR, .window_to_ms = 22 * HOUR};
    const struct cn_pause_rules always = {.window_from_ms = HOUR, .window_to_ms = HOUR};
    struct cn_reading nothing = {0};

    (void)state;
    for (uint64_t hour = 0; hour < 24; hour++) {
        bool dark = hour >= 22 || hour < 6;
        struct cn_pause_state care = {0};

        assert_int_equal(cn_pause_decide(&care, &night, &nothing, 1, hour * HOUR),
                         dark ? CN_PAUSE_NONE : CN_PAUSE_WINDOW);
        assert_int_equal(cn_pause_decide(&care, &day, &nothing, 1, hour * HOUR),
                         dark ? CN_PAUSE_WINDOW : CN_PAUSE_NONE);
        assert_int_equal(cn_pause_decide(&care, &always, &nothing, 1, hour * HOUR), CN_PAUSE_NONE);
    }
}

static void a_clock_that_was_never_set_is_outside_every_window(void **state)
{
    const struct cn_pause_rules rules = {.window_from_ms = 6 * HOUR, .window_to_ms = 22 * HOUR};
    struct cn_reading nothing = {0};
    struct cn_pause_state care = {0};

    (void)state;
    assert_int_equal(cn_pause_decide(&care, &rules, &nothing, 1, CN_PAUSE_NO_CLOCK),
                     CN_PAUSE_WINDOW);
}

static void a_day_has_a_budget_of_writes(void **state)
{
    const struct cn_pause_rules rules = {.wear_bytes = 1000};
    struct cn_reading reading = {.has_written = true, .written = 5000};
    struct cn_pause_state care = {0};

    (void)state;
    assert_int_equal(cn_pause_decide(&care, &rules, &reading, 1, NOON), CN_PAUSE_NONE);
    reading.written = 6001;
    assert_int_equal(cn_pause_decide(&care, &rules, &reading, 2, NOON), CN_PAUSE_WEAR);
    assert_int_equal(cn_pause_decide(&care, &rules, &reading, 24 * HOUR, NOON), CN_PAUSE_WEAR);
    assert_int_equal(cn_pause_decide(&care, &rules, &reading, 24 * HOUR + 1, NOON), CN_PAUSE_NONE);
}

static void an_update_of_the_system_comes_first(void **state)
{
    const struct cn_pause_rules rules = {.pause_above_mc = 88000, .resume_below_mc = 80000};
    struct cn_reading hot = at_temperature(90000);
    struct cn_pause_state care = {.held = true, .link = CN_PAUSE_BYTES};

    (void)state;
    assert_int_equal(cn_pause_decide(&care, &rules, &hot, 1000, NOON), CN_PAUSE_UPDATE);
    assert_string_equal(cn_pause_word(care.pause), "update");
    care.held = false;
    assert_int_equal(cn_pause_decide(&care, &rules, &hot, 2000, NOON), CN_PAUSE_HEAT);
}

static void without_rules_nothing_pauses(void **state)
{
    const struct cn_pause_rules none = {0};
    struct cn_reading reading = {.has_temperature = true,
                                 .temperature_mc = 149000,
                                 .has_power = true,
                                 .power_mw = 1000000,
                                 .has_others = true,
                                 .others = 1,
                                 .has_written = true,
                                 .written = UINT64_MAX};
    struct cn_pause_state care = {0};
    uint64_t now_ms = 1000;

    (void)state;
    assert_int_equal(keep(&care, &none, &reading, &now_ms, 100000), CN_PAUSE_NONE);
    assert_string_equal(cn_pause_text(CN_PAUSE_NONE), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heat_pauses_at_one_limit_and_resumes_at_the_other),
        cmocka_unit_test(a_sensor_that_vanishes_stops_nothing_for_long),
        cmocka_unit_test(a_sensor_that_sticks_is_not_believed_for_ever),
        cmocka_unit_test(power_pauses_after_a_while_and_for_a_while),
        cmocka_unit_test(other_programs_come_first),
        cmocka_unit_test(an_update_of_the_system_comes_first),
        cmocka_unit_test(a_window_may_go_over_midnight),
        cmocka_unit_test(a_clock_that_was_never_set_is_outside_every_window),
        cmocka_unit_test(a_day_has_a_budget_of_writes),
        cmocka_unit_test(without_rules_nothing_pauses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
