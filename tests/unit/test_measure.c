// What transfers say about a link.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transport/measure.h"

static void the_first_long_transfer_sets_the_goodput(void **state)
{
    struct cn_link_measure measure = {.rtt_us = 50000};
    // 125000 bytes in a second, beside two round trips.
    const struct cn_measure_sample sample = {125000, 1100000, 125, 125};

    (void)state;
    cn_measure_up(&measure, &sample);
    assert_true(fabs(measure.up_bps - 1e6) <= 1);
    assert_true(fabs(measure.loss - 0) <= 0);
    assert_true(fabs(measure.down_bps - 0) <= 0);
}

static void a_transfer_of_a_few_chunks_says_nothing_about_the_rate(void **state)
{
    struct cn_link_measure measure = {.up_bps = 1e6, .rtt_us = 600000};
    const struct cn_measure_sample sample = {400, 1900000, 1, 1};

    (void)state;
    cn_measure_up(&measure, &sample);
    assert_true(fabs(measure.up_bps - 1e6) <= 0);
}

static void a_slower_transfer_lowers_the_mean_and_raises_the_deviation(void **state)
{
    struct cn_link_measure measure = {0};
    const struct cn_measure_sample fast = {125000, 1000000, 125, 125};
    const struct cn_measure_sample slow = {125000, 4000000, 125, 250};
    double deviation;

    (void)state;
    cn_measure_up(&measure, &fast);
    deviation = measure.up_deviation_bps;
    cn_measure_up(&measure, &slow);
    assert_true(measure.up_bps < 1e6 && measure.up_bps > 0.25e6);
    assert_true(measure.up_deviation_bps > deviation);
    assert_true(fabs(measure.loss - 0.125) <= 1e-9); // a quarter of one half
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_long_transfer_sets_the_goodput),
        cmocka_unit_test(a_transfer_of_a_few_chunks_says_nothing_about_the_rate),
        cmocka_unit_test(a_slower_transfer_lowers_the_mean_and_raises_the_deviation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
