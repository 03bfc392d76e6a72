// Whole transfers over simulated links: how much of a link they use, and that nothing bad a network
// does ends them. The clock is simulated, so these are no timings: the figures never change.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "tests/support/sim_transfer.h"

static struct cn_sim_result transfer(const struct cn_sim_case *one)
{
    struct cn_sim_result result;

    cn_sim_run(one, &result);
    assert_true(result.done);
    return result;
}

static double share(uint64_t rate_bps, uint64_t rtt_ms, double loss, size_t size, bool download)
{
    struct cn_sim_case one = {.size = size, .download = download};

    cn_sim_link(&one, rate_bps, 1000 * rtt_ms, loss, rtt_ms > 50 ? rtt_ms : 50);
    return transfer(&one).share;
}

static void long_transfers_fill_the_link_with_and_without_loss(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        assert_true(share(2000000, 40, 0, 2 << 20, way) > 0.95);
        assert_true(share(2000000, 40, 0.01, 2 << 20, way) > 0.95);
        assert_true(share(2000000, 40, 0.05, 2 << 20, way) > 0.90);
        assert_true(share(2000000, 40, 0.10, 2 << 20, way) > 0.85);
        assert_true(share(20000000, 40, 0.05, 10 << 20, way) > 0.85);
        assert_true(share(2000000, 600, 0.05, 8 << 20, way) > 0.80);
    }
}

static void losses_are_repeated_and_little_else(void **state)
{
    struct cn_sim_case one = {.size = 4 << 20};
    struct cn_sim_result result;

    (void)state;
    cn_sim_link(&one, 20000000, 40000, 0.02, 200);
    result = transfer(&one);
    assert_in_range(result.retransmissions, result.up.lost / 2, result.up.lost + 20);
    assert_int_equal(result.spurious, 0);
}

static void reordering_is_not_taken_for_loss_for_long(void **state)
{
    struct cn_sim_case one = {.size = 4 << 20};
    struct cn_sim_result result;

    (void)state;
    cn_sim_link(&one, 20000000, 40000, 0, 200);
    one.up.reorder = 0.1;
    one.up.reorder_us = 25000; // more than the first margin of a quarter round trip
    result = transfer(&one);
    assert_true(result.spurious > 0 && result.spurious < 100); // of 370 that were held back
    assert_true(result.share > 0.85);
}

static void bursts_duplicates_and_small_queues_are_survived(void **state)
{
    struct cn_sim_case one = {.size = 2 << 20};

    (void)state;
    cn_sim_link(&one, 10000000, 60000, 0, 10); // the queue holds a sixth of the product
    one.up.burst_loss = one.down.burst_loss = 0.03;
    one.up.burst_length = one.down.burst_length = 8;
    one.up.duplicate = one.down.duplicate = 0.1;
    assert_true(transfer(&one).share > 0.25); // of a declaration, the first bursts take five tries
    one.download = true;
    assert_true(transfer(&one).share > 0.5);
}

static uint32_t outage_ms;

// Between the second and the end of the outage nothing passes.
static void interrupt(struct cn_exchange *exchange, const struct cn_controller *controller,
                      uint64_t elapsed_us)
{
    struct cn_sim_case one = {.size = 0};
    bool out = elapsed_us > 1000000 && elapsed_us < 1000000 + 1000ull * outage_ms;

    (void)controller;
    cn_sim_link(&one, 10000000, 60000, out ? 1 : 0, 100);
    cn_sim_reshape(exchange, &one.up, &one.down);
}

static void an_outage_costs_little_more_than_its_time(void **state)
{
    struct cn_sim_case one = {.size = 3 << 20, .watch = interrupt};
    uint64_t undisturbed_us;

    (void)state;
    cn_sim_link(&one, 10000000, 60000, 0, 100);
    outage_ms = 0;
    undisturbed_us = transfer(&one).elapsed_us;
    for (int way = 0; way < 2; way++) {
        one.download = way;
        outage_ms = 3000;
        // At worst the next attempt is as far away as the outage was long.
        assert_in_range(transfer(&one).elapsed_us, undisturbed_us + 2800000,
                        undisturbed_us + 7500000);
    }
}

static void halve_the_rate(struct cn_exchange *exchange, const struct cn_controller *controller,
                           uint64_t elapsed_us)
{
    struct cn_sim_case one = {.size = 0};

    (void)controller;
    cn_sim_link(&one, elapsed_us < 2000000 ? 20000000 : 2000000, 40000, 0.01, 200);
    cn_sim_reshape(exchange, &one.up, &one.down);
}

static void a_link_that_gets_ten_times_thinner_is_not_flooded(void **state)
{
    struct cn_sim_case one = {.size = 5 << 20, .watch = halve_the_rate};
    struct cn_sim_result result;

    (void)state;
    cn_sim_link(&one, 20000000, 40000, 0.01, 200);
    result = transfer(&one);
    assert_true(result.retransmissions < 600); // of 4681 parcels, 47 of them lost by chance
}

static void the_queue_stays_short_when_cruising(void **state)
{
    struct cn_sim_case one = {.size = 8 << 20};
    struct cn_sim_result result;

    (void)state;
    cn_sim_link(&one, 20000000, 40000, 0, 0); // without a limit, a queue could hide anything
    result = transfer(&one);
    assert_true(result.share > 0.93);
    assert_in_range(result.controller.min_rtt_us, 40000, 42000);
    assert_in_range(result.retransmissions, 1, 8); // the probes of the end
}

static void a_frame_that_was_just_made_does_not_wait_for_its_declaration(void **state)
{
    struct cn_sim_case one = {.size = 8000};
    uint64_t elapsed_us;

    (void)state;
    cn_sim_link(&one, 20000000, 200000, 0, 100);
    elapsed_us = transfer(&one).elapsed_us;
    assert_in_range(elapsed_us, 200000, 390000); // paced over a part of the first round trip
    one.again = true;
    assert_in_range(transfer(&one).elapsed_us, elapsed_us + 190000, elapsed_us + 210000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_transfers_fill_the_link_with_and_without_loss),
        cmocka_unit_test(losses_are_repeated_and_little_else),
        cmocka_unit_test(reordering_is_not_taken_for_loss_for_long),
        cmocka_unit_test(bursts_duplicates_and_small_queues_are_survived),
        cmocka_unit_test(an_outage_costs_little_more_than_its_time),
        cmocka_unit_test(a_link_that_gets_ten_times_thinner_is_not_flooded),
        cmocka_unit_test(the_queue_stays_short_when_cruising),
        cmocka_unit_test(a_frame_that_was_just_made_does_not_wait_for_its_declaration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
