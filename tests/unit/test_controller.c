// The controller under a fake clock: rate, window and phases, without any transfer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transport/transfer/controller.h"

#define UNIT 1000
#define RTT_US 50000

// A path of one unit each gap_us that answers every datagram after RTT_US; drops none.
struct path {
    struct cn_controller controller;
    struct cn_send_mark marks[4096];
    uint64_t arrive_us[4096];
    unsigned head, tail;
    uint64_t now_us, free_us, in_flight, sent;
    uint64_t gap_us, rtt_us;
};

static void open_path(struct path *path, uint64_t gap_us, uint64_t rate_bps)
{
    *path = (struct path){.now_us = 1000000, .gap_us = gap_us, .rtt_us = RTT_US};
    cn_controller_init(&path->controller, UNIT, 1u << 30, rate_bps, RTT_US);
}

static void send_one(struct path *path)
{
    unsigned slot = path->head++ % 4096;

    cn_controller_sent(&path->controller, UNIT, path->in_flight, path->now_us, &path->marks[slot]);
    path->free_us = (path->free_us > path->now_us ? path->free_us : path->now_us) + path->gap_us;
    path->arrive_us[slot] = path->free_us + path->rtt_us;
    path->in_flight += UNIT;
    path->sent += UNIT;
}

static void take_answers(struct path *path)
{
    while (path->tail != path->head && path->arrive_us[path->tail % 4096] <= path->now_us) {
        const struct cn_send_mark *mark = &path->marks[path->tail++ % 4096];

        path->in_flight -= UNIT;
        cn_controller_arrived(&path->controller, mark, UNIT, path->now_us);
        cn_controller_acked(&path->controller, path->now_us - mark->sent_us, path->in_flight,
                            path->now_us);
    }
}

static void run(struct path *path, uint64_t duration_us)
{
    uint64_t end_us = path->now_us + duration_us;

    while (path->now_us < end_us) {
        uint64_t wake_us = end_us;

        take_answers(path);
        while (cn_controller_may_send(&path->controller, path->in_flight, path->now_us, &wake_us))
            send_one(path);
        if (path->tail != path->head && path->arrive_us[path->tail % 4096] < wake_us)
            wake_us = path->arrive_us[path->tail % 4096];
        path->now_us = wake_us > path->now_us ? wake_us : path->now_us + 1;
    }
}

static void the_rate_of_the_link_is_found_and_its_queue_drained(void **state)
{
    static struct path path;

    (void)state;
    open_path(&path, 1000, 0); // 1,000,000 bytes a second
    assert_int_equal(cn_controller_window(&path.controller), 32 * UNIT);
    run(&path, 2000000);
    assert_int_equal(path.controller.phase, CN_CONTROLLER_PROBE_BW);
    assert_in_range((uint64_t)path.controller.bandwidth, 950000, 1050000);
    assert_in_range(path.controller.min_rtt_us, RTT_US, RTT_US + 2000);
    path.sent = 0;
    run(&path, 4000000);
    assert_in_range(path.sent, 3900000, 4100000);
    // The queue is bounded: no more than two products of rate and round trip are in flight.
    assert_in_range(path.in_flight, 40000, 120000);
}

static void a_rate_that_falls_is_followed(void **state)
{
    static struct path path;

    (void)state;
    open_path(&path, 1000, 0);
    run(&path, 2000000);
    path.gap_us = 4000;
    run(&path, 8000000); // ten round trips with the queue that the old rate makes
    assert_in_range((uint64_t)path.controller.bandwidth, 230000, 280000);
    path.gap_us = 1000;
    run(&path, 10000000);
    assert_in_range((uint64_t)path.controller.bandwidth, 900000, 1100000);
}

#define QUEUE_RTT_US (RTT_US * 6 / 5) // with a queue that is too short for one of others

// Three quarters of a round is taken for lost behind a standing queue. Ends with the round.
static void flood(struct path *path)
{
    uint64_t rounds = path->controller.rounds;

    path->rtt_us = QUEUE_RTT_US;
    cn_controller_lost(&path->controller, 1000 * UNIT);
    while (path->controller.rounds == rounds)
        run(path, 1000);
}

static void open_cruising_path(struct path *path)
{
    open_path(path, 1000, 0);
    run(path, 2000000);
    assert_int_equal(path->controller.phase, CN_CONTROLLER_PROBE_BW);
    path->rtt_us = QUEUE_RTT_US;
    run(path, 4 * RTT_US);
    while (path->controller.cycle != 4) // far from faster and slower sending
        run(path, 1000);
}

static void losses_of_one_round_that_may_be_undone_do_not_change_the_rate(void **state)
{
    static struct path path;

    (void)state;
    open_cruising_path(&path);
    flood(&path);
    assert_true(path.controller.bandwidth > 900000);
    cn_controller_undo_loss(&path.controller, 1000 * UNIT);
    flood(&path);
    cn_controller_undo_loss(&path.controller, 1000 * UNIT);
    run(&path, 10 * RTT_US);
    assert_true(path.controller.bandwidth > 900000);
    assert_int_equal(path.controller.phase, CN_CONTROLLER_PROBE_BW);
}

// Runs for a while. A tenth of each round counts as lost.
static void run_with_losses(struct path *path, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        cn_controller_lost(&path->controller, 5 * UNIT);
        run(path, QUEUE_RTT_US);
    }
}

// With a short queue sending faster drops the packets of others. What they then leave is no free
// rate.
static void a_rate_that_cost_losses_behind_a_queue_is_not_learned(void **state)
{
    static struct path path;

    (void)state;
    open_cruising_path(&path);
    path.gap_us = 800;
    run_with_losses(&path, 24); // three cycles
    assert_true(path.controller.bandwidth < 1100000);
    run(&path, 24 * QUEUE_RTT_US);
    assert_in_range((uint64_t)path.controller.bandwidth, 1200000, 1300000);
}

static void after_forgetting_comes_startup_and_an_undone_loss_restores_the_rate(void **state)
{
    static struct path path;
    double before;

    (void)state;
    open_cruising_path(&path);
    path.gap_us = 10000; // the link is ten times thinner
    before = path.controller.bandwidth;
    run(&path, 2 * RTT_US);
    for (int i = 0; i < 4 && path.controller.phase != CN_CONTROLLER_STARTUP; i++)
        flood(&path);
    assert_int_equal(path.controller.phase, CN_CONTROLLER_STARTUP);
    assert_true(path.controller.bandwidth < before / 2);
    assert_true(path.controller.bandwidth > 50000); // a few datagrams over two round trips
    cn_controller_undo_loss(&path.controller, 1900 * UNIT);
    assert_true(path.controller.bandwidth >= before);
}

static void an_uplink_limit_is_kept(void **state)
{
    static struct path path;

    (void)state;
    open_path(&path, 100, 800000); // the link could do a hundred times as much
    run(&path, 1000000);
    path.sent = 0;
    run(&path, 2000000);
    assert_in_range(path.sent, 190000, 206000);
}

static void a_longer_path_is_noticed_by_probing(void **state)
{
    static struct path path;

    (void)state;
    open_path(&path, 1000, 0);
    run(&path, 3000000);
    path.rtt_us = 3 * RTT_US;
    run(&path, 30000000);
    assert_in_range(path.controller.min_rtt_us, 3 * RTT_US, 3 * RTT_US + 20000);
    path.sent = 0;
    run(&path, 4000000);
    assert_in_range(path.sent, 3700000, 4100000);
}

static void loss_without_a_queue_is_made_up_for_and_leaves_the_window(void **state)
{
    static struct path path;
    uint64_t window;
    double rate;

    (void)state;
    open_path(&path, 1000, 800000); // the limit keeps the path without a queue
    run(&path, 3000000);
    window = cn_controller_window(&path.controller);
    for (int i = 0; i < 100; i++) {
        cn_controller_lost(&path.controller, UNIT / 2); // of five in a round trip
        run(&path, 50000);
    }
    assert_true(path.controller.loss > 0.05 && path.controller.loss < 0.12);
    assert_in_range(cn_controller_window(&path.controller), window * 9 / 10, window * 11 / 10);
    path.controller.rate_limit_bytes_s = 0;
    rate = cn_controller_rate(&path.controller) * (1 - path.controller.loss);
    path.controller.loss = 0;
    assert_float_equal(rate, cn_controller_rate(&path.controller), 1);
}

static void after_the_link_was_gone_everything_starts_anew(void **state)
{
    static struct path path;

    (void)state;
    open_path(&path, 1000, 0);
    run(&path, 2000000);
    path.tail = path.head;
    path.in_flight = 0;
    cn_controller_gone(&path.controller);
    assert_int_equal(path.controller.phase, CN_CONTROLLER_STARTUP);
    assert_int_equal(cn_controller_window(&path.controller), 32 * UNIT);
    run(&path, 2000000);
    assert_in_range((uint64_t)path.controller.bandwidth, 950000, 1050000);
}

static void after_a_short_pause_the_known_rate_is_used_and_after_a_long_one_half_of_it(void **state)
{
    static struct path path;
    struct cn_send_mark mark;

    (void)state;
    open_path(&path, 1000, 0);
    run(&path, 2000000);
    path.tail = path.head;
    cn_controller_sent(&path.controller, UNIT, 0, path.now_us + 20000000, &mark);
    assert_int_equal(path.controller.phase, CN_CONTROLLER_PROBE_BW);
    assert_true(cn_controller_rate(&path.controller) > 700000);
    cn_controller_sent(&path.controller, UNIT, 0, path.now_us + 200000000, &mark);
    assert_int_equal(path.controller.phase, CN_CONTROLLER_STARTUP);
    assert_in_range((uint64_t)cn_controller_rate(&path.controller), 400000, 600000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_of_the_link_is_found_and_its_queue_drained),
        cmocka_unit_test(a_rate_that_falls_is_followed),
        cmocka_unit_test(losses_of_one_round_that_may_be_undone_do_not_change_the_rate),
        cmocka_unit_test(a_rate_that_cost_losses_behind_a_queue_is_not_learned),
        cmocka_unit_test(after_forgetting_comes_startup_and_an_undone_loss_restores_the_rate),
        cmocka_unit_test(an_uplink_limit_is_kept),
        cmocka_unit_test(a_longer_path_is_noticed_by_probing),
        cmocka_unit_test(loss_without_a_queue_is_made_up_for_and_leaves_the_window),
        cmocka_unit_test(after_the_link_was_gone_everything_starts_anew),
        cmocka_unit_test(
            after_a_short_pause_the_known_rate_is_used_and_after_a_long_one_half_of_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
