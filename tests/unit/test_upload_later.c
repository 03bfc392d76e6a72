// Uploads that the aggregator puts off, over a simulated link. The clock is simulated, so these are
// no timings: the figures never change.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/sim_transfer.h"

#define SIZE 400000
#define RATE_BPS 2000000u
#define RTT_US 100000u
#define QUEUE_MS 100
#define LATER_S 600
#define DECLARATION 400 // bytes of one on the link, at most

static struct cn_sim_result send_after(uint64_t later_s)
{
    struct cn_sim_case one = {.size = SIZE, .later_us = later_s * 1000000};
    struct cn_sim_result result;

    cn_sim_link(&one, RATE_BPS, RTT_US, 0, QUEUE_MS);
    cn_sim_run(&one, &result);
    assert_true(result.done);
    return result;
}

// Early parcels may be on their way when the first "later" comes. After it only declarations go.
static void nothing_but_declarations_is_sent_until_later(void **state)
{
    uint64_t usual = send_after(0).up.bytes;
    struct cn_sim_result result = send_after(LATER_S);

    (void)state;
    assert_true(result.elapsed_us >= LATER_S * 1000000ull);
    assert_in_range(result.up.bytes, usual, usual + SIZE / 4 + LATER_S * DECLARATION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_declarations_is_sent_until_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
