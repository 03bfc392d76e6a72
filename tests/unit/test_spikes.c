// Uploads over simulated links that stand still for a moment, and first uploads without any idea of
// the link. The clock is simulated, so these are no timings: the figures never change.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/sim_transfer.h"

#define SEEDS 20
#define SIZE 5292843 // an MLP of 1.3 million parameters
#define BODY 1280    // of a message, where the path MTU is 1500
#define BEGIN_US 1000000u
#define RATE_BPS 20000000u
#define RTT_US 40000u
#define QUEUE_MS 50

static const double losses[] = {0, 0.01, 0.05};

static struct cn_sim_case on_link(double loss, unsigned seed)
{
    struct cn_sim_case one = {.size = SIZE, .body_max = BODY};

    cn_sim_link(&one, RATE_BPS, RTT_US, loss, QUEUE_MS);
    one.up.seed = 100 + 2 * (uint64_t)seed;
    one.down.seed = 101 + 2 * (uint64_t)seed;
    return one;
}

static struct cn_sim_result transfer(const struct cn_sim_case *one)
{
    struct cn_sim_result result;

    cn_sim_run(one, &result);
    assert_true(result.done);
    return result;
}

// Nothing is lost by a spike, so that it costs no more than its own time and a tenth of the rest.
static void assert_spike_costs_its_time(double loss, unsigned seed, uint64_t spike_us)
{
    struct cn_sim_case one = on_link(loss, seed);
    uint64_t usual_us = transfer(&one).elapsed_us;

    for (int way = 0; way < 2; way++) {
        for (uint64_t at_us = 30000 + 37000 * seed; at_us < usual_us; at_us += 300000) {
            one = on_link(loss, seed);
            (way ? &one.down : &one.up)->hold_us = BEGIN_US + at_us;
            (way ? &one.down : &one.up)->held_us = spike_us;
            assert_in_range(transfer(&one).elapsed_us, 1, (usual_us + spike_us) * 11 / 10);
        }
    }
}

static void a_spike_of_delay_costs_little_more_than_its_time(void **state)
{
    static const uint64_t spikes_us[] = {50000, 150000, 300000};

    (void)state;
    for (unsigned l = 0; l < 3; l++)
        for (unsigned s = 0; s < 3; s++)
            assert_spike_costs_its_time(losses[l], 3 * l + s, spikes_us[s]);
}

// These took 1.2 to 1.6 times as long: the rate was taken from a parcel that had been sent twice, a
// full window let no time-out send, or the spike looked like a queue of our own and ended STARTUP.
static void a_spike_at_the_beginning_costs_little_more_than_its_time(void **state)
{
    static const struct {
        unsigned seed;
        bool down;
        uint64_t at_us, held_us;
    } spikes[] = {
        {41, false, 130000, 150000}, {8, false, 280000, 150000}, {35, false, 310000, 150000},
        {33, false, 70000, 300000},  {47, false, 70000, 300000}, {13, true, 100000, 300000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(spikes) / sizeof(spikes[0]); i++) {
        struct cn_sim_case one = on_link(0.05, spikes[i].seed);
        uint64_t usual_us = transfer(&one).elapsed_us;

        one = on_link(0.05, spikes[i].seed);
        (spikes[i].down ? &one.down : &one.up)->hold_us = BEGIN_US + spikes[i].at_us;
        (spikes[i].down ? &one.down : &one.up)->held_us = spikes[i].held_us;
        assert_in_range(transfer(&one).elapsed_us, 1, (usual_us + spikes[i].held_us) * 11 / 10);
    }
}

static void a_first_upload_fills_the_link_whatever_is_lost(void **state)
{
    static const double least[] = {0.96, 0.95, 0.87}, mean[] = {0.97, 0.96, 0.95};

    (void)state;
    for (unsigned l = 0; l < 3; l++) {
        double sum = 0;

        for (unsigned seed = 0; seed < SEEDS; seed++) {
            struct cn_sim_case one = on_link(losses[l], seed);
            double share = transfer(&one).share;

            assert_true(share > least[l]);
            sum += share / SEEDS;
        }
        assert_true(sum > mean[l]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spike_of_delay_costs_little_more_than_its_time),
        cmocka_unit_test(a_spike_at_the_beginning_costs_little_more_than_its_time),
        cmocka_unit_test(a_first_upload_fills_the_link_whatever_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
