// Limits of bytes a day, and hours in which traffic costs, with a clock and a date that the test
// sets.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/port/platform.h"
#include "runtime/round/upkeep/traffic.h"

#define HOUR UINT64_C(3600000)
#define DATE UINT64_C(1700000000) // s

static const struct cn_traffic_rules a_day = {.day_bytes = 10000};

static void a_day_ends_when_its_bytes_are_used_and_begins_anew_after_24_hours(void **state)
{
    struct cn_traffic traffic = {0};

    (void)state;
    cn_traffic_count(&traffic, 0, 5 * HOUR);
    cn_traffic_count(&traffic, 0, 40 * HOUR); // no byte yet: no day has begun
    cn_traffic_count(&traffic, 6000, 41 * HOUR);
    assert_int_equal(cn_traffic_decide(&traffic, &a_day, 0), CN_PAUSE_NONE);
    cn_traffic_count(&traffic, 9999, 50 * HOUR);
    assert_int_equal(cn_traffic_decide(&traffic, &a_day, 0), CN_PAUSE_NONE);
    cn_traffic_count(&traffic, 10000, 51 * HOUR);
    assert_int_equal(cn_traffic_decide(&traffic, &a_day, 0), CN_PAUSE_BYTES);
    cn_traffic_count(&traffic, 10000, 65 * HOUR - 1);
    assert_int_equal(cn_traffic_decide(&traffic, &a_day, 0), CN_PAUSE_BYTES);
    cn_traffic_count(&traffic, 10001, 65 * HOUR);
    assert_int_equal(cn_traffic_decide(&traffic, &a_day, 0), CN_PAUSE_NONE);
    assert_int_equal(traffic.used, 1);
}

static void an_update_gets_half_of_what_is_left_of_the_day(void **state)
{
    static const struct cn_traffic_rules none = {0};
    struct cn_traffic traffic = {0};

    (void)state;
    assert_int_equal(cn_traffic_update_max(&traffic, &none, 0), 0);
    assert_int_equal(cn_traffic_update_max(&traffic, &a_day, 0), 5000);
    cn_traffic_count(&traffic, 9000, 1);
    assert_int_equal(cn_traffic_update_max(&traffic, &a_day, 0), 500);
    cn_traffic_count(&traffic, 12000, 2); // never "no limit"
    assert_int_equal(cn_traffic_update_max(&traffic, &a_day, 0), 1);
}

static void the_link_pauses_or_gets_less_in_the_hours_that_cost(void **state)
{
    static const struct {
        uint64_t from, to, now;
        bool costs;
    } cases[] = {{8, 20, 7, false},  {8, 20, 8, true},   {8, 20, 19, true},
                 {8, 20, 20, false}, {20, 8, 19, false}, {20, 8, 20, true},
                 {20, 8, 7, true},   {20, 8, 8, false},  {5, 5, 5, false}};
    struct cn_traffic traffic = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_traffic_rules rules = {.metered_from_ms = cases[i].from * HOUR,
                                         .metered_to_ms = cases[i].to * HOUR};
        uint64_t now = cases[i].now * HOUR;

        assert_int_equal(cn_traffic_decide(&traffic, &rules, now),
                         cases[i].costs ? CN_PAUSE_METERED : CN_PAUSE_NONE);
        rules.metered_bytes = 700;
        assert_int_equal(cn_traffic_decide(&traffic, &rules, now), CN_PAUSE_NONE);
        assert_int_equal(cn_traffic_update_max(&traffic, &rules, now), cases[i].costs ? 700 : 0);
        rules.day_bytes = 10000;
        assert_int_equal(cn_traffic_update_max(&traffic, &rules, now), cases[i].costs ? 700 : 5000);
    }
}

static void without_a_date_all_hours_cost_if_some_do(void **state)
{
    static const struct cn_traffic_rules some = {.metered_from_ms = 1, .metered_to_ms = 2};
    static const struct cn_traffic_rules never = {.metered_from_ms = 1, .metered_to_ms = 1};
    struct cn_traffic traffic = {0};

    (void)state;
    assert_int_equal(cn_traffic_decide(&traffic, &some, CN_PAUSE_NO_CLOCK), CN_PAUSE_METERED);
    assert_int_equal(cn_traffic_decide(&traffic, &never, CN_PAUSE_NO_CLOCK), CN_PAUSE_NONE);
}

// Used 9900 of the day at its 10th hour, then the program ended at a date and began at another.
static struct cn_traffic restarted(uint64_t before_s, uint64_t after_s)
{
    char directory[] = "/tmp/cairn-traffic-XXXXXX";
    struct cn_traffic traffic = {0}, loaded;
    struct cn_store *store;
    char command[64];

    assert_non_null(mkdtemp(directory));
    assert_int_equal(cn_platform_open_store(directory, &store), CN_OK);
    cn_traffic_count(&traffic, 9000, 100 * HOUR);
    cn_traffic_save(store, &a_day, before_s, false, &traffic);
    assert_int_equal(traffic.stored, 9000);
    cn_traffic_count(&traffic, 9050, 105 * HOUR);
    cn_traffic_save(store, &a_day, before_s, false, &traffic); // less than a hundredth more
    assert_int_equal(traffic.stored, 9000);
    cn_traffic_count(&traffic, 9900, 110 * HOUR);
    cn_traffic_save(store, &a_day, before_s, true, &traffic);
    cn_traffic_load(store, after_s, &loaded);
    // The clock since boot is another one, and the counter of the link begins at 0.
    cn_traffic_count(&loaded, 0, 3 * HOUR);
    store->ops->close(store);
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a directory of this test
    return loaded;
}

static void a_day_goes_on_after_a_restart(void **state)
{
    struct cn_traffic traffic = restarted(DATE, DATE + 3600);

    (void)state;
    assert_int_equal(traffic.used, 9900);
    cn_traffic_count(&traffic, 100, 3 * HOUR);
    assert_int_equal(cn_traffic_decide(&traffic, &a_day, 0), CN_PAUSE_BYTES);
    // 10 h before, 1 h off: 13 h are left.
    cn_traffic_count(&traffic, 100, 16 * HOUR - 1);
    assert_int_equal(cn_traffic_decide(&traffic, &a_day, 0), CN_PAUSE_BYTES);
    cn_traffic_count(&traffic, 100, 16 * HOUR);
    assert_int_equal(cn_traffic_decide(&traffic, &a_day, 0), CN_PAUSE_NONE);
}

static void a_board_in_1970_does_not_count_the_time_it_was_off(void **state)
{
    struct cn_traffic traffic = restarted(0, DATE);

    (void)state;
    assert_int_equal(traffic.elapsed_ms, 10 * HOUR);
    traffic = restarted(DATE, 0);
    assert_int_equal(traffic.elapsed_ms, 10 * HOUR);
    traffic = restarted(DATE, DATE - 5); // set back
    assert_int_equal(traffic.elapsed_ms, 10 * HOUR);
    traffic = restarted(DATE, DATE + 14 * 3600); // the rest of the day
    assert_int_equal(traffic.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_day_ends_when_its_bytes_are_used_and_begins_anew_after_24_hours),
        cmocka_unit_test(an_update_gets_half_of_what_is_left_of_the_day),
        cmocka_unit_test(the_link_pauses_or_gets_less_in_the_hours_that_cost),
        cmocka_unit_test(without_a_date_all_hours_cost_if_some_do),
        cmocka_unit_test(a_day_goes_on_after_a_restart),
        cmocka_unit_test(a_board_in_1970_does_not_count_the_time_it_was_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
