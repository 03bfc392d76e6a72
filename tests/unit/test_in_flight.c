// Parcels under way, under a fake clock and without any link.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transport/transfer/in_flight.h"

#define UNIT 1000
#define RTT_US 50000
#define PARCELS 100

struct transfer_fixture {
    struct cn_controller controller;
    struct cn_in_flight flight;
    struct cn_rtt rtt;
    uint64_t now_us;
};

// Ten parcels arrived within a second, and ten are under way.
static void start(struct transfer_fixture *transfer)
{
    *transfer = (struct transfer_fixture){.now_us = 1000000};
    cn_rtt_add(&transfer->rtt, RTT_US);
    cn_controller_init(&transfer->controller, UNIT, 1u << 30, 0, RTT_US);
    assert_int_equal(cn_in_flight_init(&transfer->flight, &transfer->controller, PARCELS), CN_OK);
    for (uint32_t i = 0; i < 20; i++) {
        cn_in_flight_sent(&transfer->flight, i, UNIT, transfer->now_us);
        transfer->now_us += RTT_US;
        if (i < 10 && cn_in_flight_arrived(&transfer->flight, i, 0, transfer->now_us))
            cn_in_flight_acked(&transfer->flight, RTT_US, transfer->now_us);
    }
    assert_true(transfer->controller.bandwidth > 0);
}

static void after_four_silent_time_outs_the_link_is_gone_and_its_rate_forgotten(void **state)
{
    struct transfer_fixture transfer;
    unsigned expired = 0;

    (void)state;
    start(&transfer);
    while (expired < 4) {
        uint64_t wake_us = transfer.now_us + 60000000;

        assert_false(cn_in_flight_take_gone(&transfer.flight));
        assert_true(transfer.controller.bandwidth > 0);
        if (cn_in_flight_expire(&transfer.flight, &transfer.rtt, transfer.now_us, &wake_us))
            expired++;
        else
            transfer.now_us = wake_us;
    }
    assert_true(cn_in_flight_take_gone(&transfer.flight));
    assert_true(transfer.controller.bandwidth <= 0);
    assert_int_equal(transfer.controller.phase, CN_CONTROLLER_STARTUP);
    assert_int_equal(transfer.flight.in_flight, 0);
    assert_int_equal(transfer.rtt.backoff, 4);
    cn_in_flight_deinit(&transfer.flight);
}

static void a_parcel_that_was_held_back_is_the_next_and_counts_as_no_loss(void **state)
{
    struct transfer_fixture transfer;
    uint64_t in_flight;

    (void)state;
    start(&transfer);
    in_flight = transfer.flight.in_flight;
    cn_in_flight_again(&transfer.flight, 15, transfer.now_us);
    assert_int_equal(cn_in_flight_next(&transfer.flight), 15);
    assert_int_equal(transfer.flight.in_flight, in_flight - UNIT);
    assert_int_equal(transfer.controller.lost, 0);
    cn_in_flight_sent(&transfer.flight, 15, UNIT, transfer.now_us);
    assert_true(cn_in_flight_arrived(&transfer.flight, 15, 0, transfer.now_us + RTT_US));
    assert_int_equal(transfer.flight.spurious, 0);
    cn_in_flight_again(&transfer.flight, 15, transfer.now_us + RTT_US); // it is there by now
    assert_true(cn_in_flight_is_done(&transfer.flight, 15));
    cn_in_flight_deinit(&transfer.flight);
}

// After a silence one parcel goes again. The answer to its first transmission then comes late, with
// all the others: none of them was lost.
static void a_parcel_sent_again_in_a_spike_of_delay_makes_no_other_look_lost(void **state)
{
    struct transfer_fixture transfer;
    uint64_t wake_us = UINT64_MAX;

    (void)state;
    start(&transfer);
    while (!cn_in_flight_expire(&transfer.flight, &transfer.rtt, transfer.now_us, &wake_us))
        transfer.now_us = wake_us, wake_us = UINT64_MAX;
    assert_int_equal(cn_in_flight_next(&transfer.flight), 10);
    cn_in_flight_sent(&transfer.flight, 10, UNIT, transfer.now_us);
    transfer.now_us += 2 * RTT_US;
    assert_true(cn_in_flight_arrived(&transfer.flight, 10, CN_IN_FLIGHT_UNSURE, transfer.now_us));
    cn_in_flight_acked(&transfer.flight, 0, transfer.now_us);
    assert_int_equal(transfer.controller.lost, 0);
    assert_int_equal(transfer.flight.in_flight, 9 * UNIT);
    cn_in_flight_deinit(&transfer.flight);
}

static void the_answer_to_the_transmission_before_shows_that_nothing_was_lost(void **state)
{
    struct transfer_fixture transfer;

    (void)state;
    start(&transfer);
    assert_true(cn_in_flight_arrived(&transfer.flight, 19, 0, transfer.now_us));
    cn_in_flight_acked(&transfer.flight, RTT_US, transfer.now_us); // 10 to 18 are late
    assert_int_equal(transfer.controller.lost, 9 * UNIT);
    cn_in_flight_sent(&transfer.flight, 10, UNIT, transfer.now_us);
    transfer.now_us += 2 * RTT_US;
    assert_true(cn_in_flight_arrived(&transfer.flight, 10, 1, transfer.now_us));
    assert_int_equal(transfer.flight.spurious, 1);
    assert_int_equal(transfer.controller.lost, 8 * UNIT);
    cn_in_flight_deinit(&transfer.flight);
}

// After a silence the window may be full of parcels that are lost, so that it never empties.
static void the_parcel_of_a_time_out_needs_no_room_in_the_window(void **state)
{
    struct transfer_fixture transfer;
    uint64_t wake_us = UINT64_MAX;

    (void)state;
    start(&transfer);
    transfer.controller.window_max = 2 * UNIT;
    assert_false(cn_in_flight_may_send(&transfer.flight, transfer.now_us, &wake_us));
    while (!cn_in_flight_expire(&transfer.flight, &transfer.rtt, transfer.now_us, &wake_us))
        transfer.now_us = wake_us, wake_us = UINT64_MAX;
    assert_true(cn_in_flight_may_send(&transfer.flight, transfer.now_us, &wake_us));
    cn_in_flight_sent(&transfer.flight, cn_in_flight_next(&transfer.flight), UNIT, transfer.now_us);
    assert_false(
        cn_in_flight_may_send(&transfer.flight, transfer.now_us, &wake_us)); // only that one
    cn_in_flight_deinit(&transfer.flight);
}

static void an_arrival_that_may_be_of_an_earlier_transmission_gives_no_rate(void **state)
{
    struct transfer_fixture transfer;

    (void)state;
    start(&transfer);
    cn_in_flight_again(&transfer.flight, 10, transfer.now_us);
    cn_in_flight_sent(&transfer.flight, 10, UNIT, transfer.now_us);
    transfer.now_us += RTT_US;
    assert_true(cn_in_flight_arrived(&transfer.flight, 10, CN_IN_FLIGHT_UNSURE, transfer.now_us));
    assert_false(transfer.controller.sampled);
    assert_true(cn_in_flight_arrived(&transfer.flight, 11, CN_IN_FLIGHT_UNSURE, transfer.now_us));
    assert_true(transfer.controller.sampled); // it was sent once only
    cn_in_flight_deinit(&transfer.flight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parcel_of_a_time_out_needs_no_room_in_the_window),
        cmocka_unit_test(an_arrival_that_may_be_of_an_earlier_transmission_gives_no_rate),
        cmocka_unit_test(after_four_silent_time_outs_the_link_is_gone_and_its_rate_forgotten),
        cmocka_unit_test(a_parcel_that_was_held_back_is_the_next_and_counts_as_no_loss),
        cmocka_unit_test(a_parcel_sent_again_in_a_spike_of_delay_makes_no_other_look_lost),
        cmocka_unit_test(the_answer_to_the_transmission_before_shows_that_nothing_was_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
