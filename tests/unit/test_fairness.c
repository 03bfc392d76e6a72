// An upload of Cairn beside a TCP flow with CUBIC on one simulated link: each gets at least 30 % of
// it, for any length of the queue and whichever began first. The clock is simulated, so the
// figures never change. With the argument "all" it takes more lengths, and half a minute more. With
// "print" it tests nothing, and prints the shares on many links (tests/bench/README.md).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/support/cubic_flow.h"
#include "tests/support/sim_transfer.h"

#define DURATION_US 40000000u
#define SIZE (50u << 20) // more than the link carries in that time

struct link {
    uint64_t rate_bps, rtt_us;
};

static const struct link usual = {10000000, 40000};
static struct cn_cubic_flow cubic;
static uint64_t ours_bytes, cubic_bytes; // that arrived in the time

static void run_cubic(struct cn_exchange *exchange, const struct cn_controller *controller,
                      uint64_t elapsed_us)
{
    if (elapsed_us >= DURATION_US)
        return;
    cn_cubic_step(&cubic, exchange);
    ours_bytes = controller->delivered;
    cubic_bytes = cubic.delivered * CN_CUBIC_PACKET;
}

// The share of ours. cubic_first: the other flow has filled the queue when ours begins.
static double share_beside_cubic(const struct link *link, uint64_t queue_ms, bool cubic_first)
{
    struct cn_sim_case one = {.size = SIZE, .body_max = 1280, .watch = run_cubic};
    struct cn_sim_result result;

    cn_sim_link(&one, link->rate_bps, link->rtt_us, 0, queue_ms);
    cn_cubic_init(&cubic, link->rtt_us);
    if (cubic_first)
        cn_cubic_begin_full(&cubic, link->rate_bps, 1000 * queue_ms);
    cn_sim_run(&one, &result);
    assert_true(result.done);
    return (double)ours_bytes / (double)(ours_bytes + cubic_bytes);
}

static const uint64_t queues_ms[] = {40, 100, 200, 500};

static int step = 4; // through queues_ms

static void assert_shares(bool cubic_first)
{
    for (int i = cubic_first && step > 1 ? 2 : 0; i < 4; i += step) {
        double share = share_beside_cubic(&usual, queues_ms[i], cubic_first);

        if (share < 0.3 || share > 0.7)
            fail_msg("ours has %.2f of the link with a queue of %u ms", share,
                     (unsigned)queues_ms[i]);
    }
}

static void both_that_begin_together_get_their_part(void **state)
{
    (void)state;
    assert_shares(false);
}

static void a_flow_that_was_there_first_leaves_ours_its_part(void **state)
{
    (void)state;
    assert_shares(true);
}

// Ours does not take the rate that the other one leaves after the losses which ours caused.
static void behind_a_queue_of_a_round_trip_cubic_gets_nearly_half(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        double share = share_beside_cubic(&usual, usual.rtt_us / 1000, first);

        if (share > 0.55)
            fail_msg("ours has %.2f of the link", share);
    }
}

// Prints a line for each link and order of the flows: the share of ours by length of the queue.
static void print_shares(void)
{
    static const uint64_t rates_bps[] = {4000000, 10000000, 25000000};
    static const uint64_t rtts_us[] = {20000, 40000, 100000},
                          lengths_ms[] = {40, 100, 200, 400, 600};

    printf("Mbit/s  ms  first    queue 40   100   200   400   600 ms\n");
    for (int i = 0; i < 3 * 3 * 2; i++) {
        const struct link link = {rates_bps[i / 6], rtts_us[i / 2 % 3]};

        printf("%6u %3u  %-8s      ", (unsigned)(link.rate_bps / 1000000),
               (unsigned)(link.rtt_us / 1000), i % 2 ? "cubic" : "neither");
        for (int q = 0; q < 5; q++) {
            if (1000 * lengths_ms[q] < link.rtt_us)
                printf("   -  ");
            else
                printf("  %.2f", share_beside_cubic(&link, lengths_ms[q], i % 2));
        }
        printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_that_begin_together_get_their_part),
        cmocka_unit_test(a_flow_that_was_there_first_leaves_ours_its_part),
        cmocka_unit_test(behind_a_queue_of_a_round_trip_cubic_gets_nearly_half),
    };

    if (argc > 1 && strcmp(argv[1], "print") == 0) {
        print_shares();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "all") == 0)
        step = 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
