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

struct world {
    struct cn_controller controller;
    struct cn_in_flight flight;
    struct cn_rtt rtt;
    uint64_t now_us;
};

// Ten parcels arrived within a second, and ten are under way.
static void start(struct world *world)
{
    *world = (struct world){.now_us = 1000000};
    cn_rtt_add(&world->rtt, RTT_US);
    cn_controller_init(&world->controller, UNIT, 1u << 30, 0, RTT_US);
    assert_int_equal(cn_in_flight_init(&world->flight, &world->controller, PARCELS), CN_OK);
    for (uint32_t i = 0; i < 20; i++) {
        cn_in_flight_sent(&world->flight, i, UNIT, world->now_us);
        world->now_us += RTT_US;
        if (i < 10 && cn_in_flight_arrived(&world->flight, i, 0, world->now_us))
            cn_in_flight_acked(&world->flight, RTT_US, world->now_us);
    }
    assert_true(world->controller.bandwidth > 0);
}

static void after_four_silent_time_outs_the_link_is_gone_and_its_rate_forgotten(void **state)
{
    struct world world;
    unsigned expired = 0;

    (void)state;
    start(&world);
    while (expired < 4) {
        uint64_t wake_us = world.now_us + 60000000;

        assert_false(cn_in_flight_take_gone(&world.flight));
        assert_true(world.controller.bandwidth > 0);
        if (cn_in_flight_expire(&world.flight, &world.rtt, world.now_us, &wake_us))
            expired++;
        else
            world.now_us = wake_us;
    }
    assert_true(cn_in_flight_take_gone(&world.flight));
    assert_true(world.controller.bandwidth <= 0);
    assert_int_equal(world.controller.phase, CN_CONTROLLER_STARTUP);
    assert_int_equal(world.flight.in_flight, 0);
    assert_int_equal(world.rtt.backoff, 4);
    cn_in_flight_deinit(&world.flight);
}

static void a_parcel_that_was_held_back_is_the_next_and_counts_as_no_loss(void **state)
{
    struct world world;
    uint64_t in_flight;

    (void)state;
    start(&world);
    in_flight = world.flight.in_flight;
    cn_in_flight_again(&world.flight, 15, world.now_us);
    assert_int_equal(cn_in_flight_next(&world.flight), 15);
    assert_int_equal(world.flight.in_flight, in_flight - UNIT);
    assert_int_equal(world.controller.lost, 0);
    cn_in_flight_sent(&world.flight, 15, UNIT, world.now_us);
    assert_true(cn_in_flight_arrived(&world.flight, 15, 0, world.now_us + RTT_US));
    assert_int_equal(world.flight.spurious, 0);
    cn_in_flight_again(&world.flight, 15, world.now_us + RTT_US); // it is there by now
    assert_true(cn_in_flight_is_done(&world.flight, 15));
    cn_in_flight_deinit(&world.flight);
}

// After a silence one parcel goes again. The answer to its first transmission then comes late, with
// all the others: none of them was lost.
static void a_parcel_sent_again_in_a_spike_of_delay_makes_no_other_look_lost(void **state)
{
    struct world world;
    uint64_t wake_us = UINT64_MAX;

    (void)state;
    start(&world);
    while (!cn_in_flight_expire(&world.flight, &world.rtt, world.now_us, &wake_us))
        world.now_us = wake_us, wake_us = UINT64_MAX;
    assert_int_equal(cn_in_flight_next(&world.flight), 10);
    cn_in_flight_sent(&world.flight, 10, UNIT, world.now_us);
    world.now_us += 2 * RTT_US;
    assert_true(cn_in_flight_arrived(&world.flight, 10, CN_IN_FLIGHT_UNSURE, world.now_us));
    cn_in_flight_acked(&world.flight, 0, world.now_us);
    assert_int_equal(world.controller.lost, 0);
    assert_int_equal(world.flight.in_flight, 9 * UNIT);
    cn_in_flight_deinit(&world.flight);
}

static void the_answer_to_the_transmission_before_shows_that_nothing_was_lost(void **state)
{
    struct world world;

    (void)state;
    start(&world);
    assert_true(cn_in_flight_arrived(&world.flight, 19, 0, world.now_us));
    cn_in_flight_acked(&world.flight, RTT_US, world.now_us); // 10 to 18 are late
    assert_int_equal(world.controller.lost, 9 * UNIT);
    cn_in_flight_sent(&world.flight, 10, UNIT, world.now_us);
    world.now_us += 2 * RTT_US;
    assert_true(cn_in_flight_arrived(&world.flight, 10, 1, world.now_us));
    assert_int_equal(world.flight.spurious, 1);
    assert_int_equal(world.controller.lost, 8 * UNIT);
    cn_in_flight_deinit(&world.flight);
}

// After a silence the window may be full of parcels that are lost, so that it never empties.
static void the_parcel_of_a_time_out_needs_no_room_in_the_window(void **state)
{
    struct world world;
    uint64_t wake_us = UINT64_MAX;

    (void)state;
    start(&world);
    world.controller.window_max = 2 * UNIT;
    assert_false(cn_in_flight_may_send(&world.flight, world.now_us, &wake_us));
    while (!cn_in_flight_expire(&world.flight, &world.rtt, world.now_us, &wake_us))
        world.now_us = wake_us, wake_us = UINT64_MAX;
    assert_true(cn_in_flight_may_send(&world.flight, world.now_us, &wake_us));
    cn_in_flight_sent(&world.flight, cn_in_flight_next(&world.flight), UNIT, world.now_us);
    assert_false(cn_in_flight_may_send(&world.flight, world.now_us, &wake_us)); // only that one
    cn_in_flight_deinit(&world.flight);
}

static void an_arrival_that_may_be_of_an_earlier_transmission_gives_no_rate(void **state)
{
    struct world world;

    (void)state;
    start(&world);
    cn_in_flight_again(&world.flight, 10, world.now_us);
    cn_in_flight_sent(&world.flight, 10, UNIT, world.now_us);
    world.now_us += RTT_US;
    assert_true(cn_in_flight_arrived(&world.flight, 10, CN_IN_FLIGHT_UNSURE, world.now_us));
    assert_false(world.controller.sampled);
    assert_true(cn_in_flight_arrived(&world.flight, 11, CN_IN_FLIGHT_UNSURE, world.now_us));
    assert_true(world.controller.sampled); // it was sent once only
    cn_in_flight_deinit(&world.flight);
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
