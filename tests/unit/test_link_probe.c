// How many bytes are sent to measure a link, and what the times say.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <math.h>

#include "runtime/group/link_probe.h"

// Returns the time of an echo over a link that sends `burst` bytes at once and the rest at a rate.
static uint64_t echo_us(uint32_t size, uint32_t burst, uint64_t kbps)
{
    return 2 * (uint64_t)(size > burst ? size - burst : 0) * 8000 / kbps;
}

// A shaper of 1 Gbit/s lets 32 KiB pass at once: half of the first probe.
static void a_burst_of_a_quick_link_counts_little(void **state)
{
    uint64_t first_us = echo_us(CN_PROBE_SIZE, 32 << 10, 1000000);
    uint32_t size = cn_probe_larger(first_us);

    (void)state;
    assert_true(cn_probe_kbps(CN_PROBE_SIZE, first_us) > 1900000);
    assert_true(size > CN_PROBE_SIZE);
    assert_true(cn_probe_kbps(size, echo_us(size, 32 << 10, 1000000)) < 1040000);
}

static void a_slow_link_gets_no_second_probe(void **state)
{
    (void)state;
    assert_int_equal(cn_probe_larger(echo_us(CN_PROBE_SIZE, 0, 10000)), 0);
    assert_int_equal(cn_probe_larger(20001), 0);
    assert_int_equal(cn_probe_larger(20000), 2 * CN_PROBE_SIZE);
    assert_int_equal(cn_probe_larger(0), CN_PROBE_MOST);
}

static void a_sum_takes_about_as_long_over_any_link(void **state)
{
    const int64_t quick[] = {100000, 100000, 100000, 100000}, mixed[] = {100000, 9000, 100000};
    const int64_t thin[] = {10, 10}, none[] = {0, 0};

    (void)state;
    assert_int_equal(cn_probe_sum_size(quick, 4), 333332); // three quarters, twice, in 40 ms
    assert_int_equal(cn_probe_sum_size(mixed, 3), 33748);
    assert_int_equal(cn_probe_sum_size(thin, 2), CN_PROBE_SUM_LEAST);
    assert_int_equal(cn_probe_sum_size(none, 2), CN_PROBE_SUM_LEAST);
    assert_int_equal(cn_probe_sum_size((const int64_t[]){INT64_MAX, INT64_MAX}, 2), CN_PROBE_MOST);
}

// 250 KB of two members are 20 ms at 100 Mbit/s if both directions are free.
static void a_sum_shows_what_the_links_share(void **state)
{
    const int64_t kbps[] = {200000, 100000};

    (void)state;
    assert_true(fabs(cn_probe_sum_share(kbps, 2, 250000, 20000, 0) - 1) < 1e-6);
    assert_true(fabs(cn_probe_sum_share(kbps, 2, 250000, 40000, 0) - 0.5) < 1e-6);
    assert_true(fabs(cn_probe_sum_share(kbps, 2, 250000, 41000, 500) - 0.5) < 1e-6);
    assert_true(fabs(cn_probe_sum_share(kbps, 2, 250000, 10000, 0) - 1) < 1e-6);
    assert_true(cn_probe_sum_share(kbps, 2, 250000, 0, 500) <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_of_a_quick_link_counts_little),
        cmocka_unit_test(a_slow_link_gets_no_second_probe),
        cmocka_unit_test(a_sum_takes_about_as_long_over_any_link),
        cmocka_unit_test(a_sum_shows_what_the_links_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
