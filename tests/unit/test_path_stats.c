// Statistics of a link from its controllers, and the transport that they recommend.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transport/transfer/path_stats.h"

#define PARCEL 1000 // bytes, and 100 around it

// A transfer of size bytes in a second during which the controller found out a bandwidth.
static bool transfer(struct cn_path_stats *measure, struct cn_controller *controller, uint64_t size,
                     double bandwidth, uint64_t lost)
{
    cn_path_stats_begin(measure, true, controller, 1000000);
    controller->unit = PARCEL + 100;
    controller->bandwidth = bandwidth;
    controller->delivered += size;
    controller->lost += lost;
    return cn_path_stats_end(measure, true, controller, size, PARCEL, 2000000);
}

static void the_rate_is_the_controllers_without_headers(void **state)
{
    struct cn_path_stats measure = {0};
    struct cn_controller controller = {.full = true, .min_rtt_us = 50000};

    (void)state;
    transfer(&measure, &controller, 100000, 137500, 0);
    assert_true(fabs(measure.figures.up_bps - 1e6) <= 1);
    assert_true(fabs(measure.figures.loss) <= 0);
    assert_true(fabs(measure.figures.down_bps) <= 0);
    assert_int_equal(measure.figures.rtt_us, 50000);
}

static void a_transfer_of_a_few_parcels_says_nothing(void **state)
{
    struct cn_path_stats measure = {.figures = {.up_bps = 1e6}};
    struct cn_controller controller = {.full = true};

    (void)state;
    transfer(&measure, &controller, 7 * PARCEL, 1000, 5000);
    assert_true(fabs(measure.figures.up_bps - 1e6) <= 0);
    assert_true(fabs(measure.figures.loss) <= 0);
}

static void before_the_link_is_full_its_rate_is_only_known_to_be_no_less(void **state)
{
    struct cn_path_stats measure = {0};
    struct cn_controller controller = {0};

    (void)state;
    transfer(&measure, &controller, 100000, 137500, 0);
    assert_true(fabs(measure.figures.up_bps - 1e6) <= 1);
    transfer(&measure, &controller, 100000, 13750, 0);
    assert_true(fabs(measure.figures.up_bps - 1e6) <= 1);
    controller.full = true;
    transfer(&measure, &controller, 100000, 13750, 0);
    assert_true(measure.figures.up_bps < 1e6);
}

static void a_slower_transfer_lowers_the_mean_and_raises_the_deviation(void **state)
{
    struct cn_path_stats measure = {0};
    struct cn_controller controller = {.full = true};
    double deviation;

    (void)state;
    transfer(&measure, &controller, 100000, 137500, 0);
    deviation = measure.figures.up_deviation_bps;
    transfer(&measure, &controller, 100000, 34375, 100000);
    assert_true(measure.figures.up_bps < 1e6 && measure.figures.up_bps > 0.25e6);
    assert_true(measure.figures.up_deviation_bps > deviation);
    assert_true(fabs(measure.figures.loss - 0.125) <= 1e-9); // a quarter of one half
}

// The rate over UDP, over TCP, and what is used in the end.
static bool chosen(double datagrams, double stream)
{
    struct cn_transport_choice way = {0};
    bool next = false;

    for (int i = 0; i < 5; i++)
        next = cn_transport_choice_add(&way, next, 2 << 20, next ? stream : datagrams);
    return next;
}

static void the_way_that_carries_more_is_taken(void **state)
{
    (void)state;
    assert_false(chosen(10e6, 1e6));
    assert_false(chosen(10e6, 10.5e6)); // not worth it
    assert_true(chosen(10e6, 20e6));
}

static void the_other_way_is_tried_with_a_long_transfer_only_and_seldom(void **state)
{
    struct cn_transport_choice way = {0};
    unsigned tried = 0;
    bool next = false;

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_false(cn_transport_choice_add(&way, false, 100000, 1e6));
    for (int i = 0; i < 100; i++) {
        next = cn_transport_choice_add(&way, next, 2 << 20, next ? 1e6 : 10e6);
        tried += next;
    }
    assert_in_range(tried, 3, 4);
}

// The session over TCP did not come about: the next transfer goes over UDP again.
static void a_way_that_is_closed_is_not_tried_at_once_again(void **state)
{
    struct cn_transport_choice way = {0};

    (void)state;
    assert_true(cn_transport_choice_add(&way, false, 2 << 20, 10e6));
    assert_false(cn_transport_choice_add(&way, false, 2 << 20, 10e6));
    assert_false(cn_transport_choice_add(&way, false, 2 << 20, 10e6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_is_the_controllers_without_headers),
        cmocka_unit_test(a_transfer_of_a_few_parcels_says_nothing),
        cmocka_unit_test(before_the_link_is_full_its_rate_is_only_known_to_be_no_less),
        cmocka_unit_test(a_slower_transfer_lowers_the_mean_and_raises_the_deviation),
        cmocka_unit_test(the_way_that_carries_more_is_taken),
        cmocka_unit_test(the_other_way_is_tried_with_a_long_transfer_only_and_seldom),
        cmocka_unit_test(a_way_that_is_closed_is_not_tried_at_once_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
