// Time-outs and back-off, against the formulas of RFC 6298.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transport/coap/retry.h"

static void the_time_out_follows_the_round_trips(void **state)
{
    struct cn_rtt rtt = {0};

    (void)state;
    assert_int_equal(cn_rtt_timeout_us(&rtt), 1000000);
    cn_rtt_add(&rtt, 200000);
    assert_int_equal(cn_rtt_timeout_us(&rtt), 600000); // R + 4 * R / 2
    cn_rtt_add(&rtt, 280000);
    assert_int_equal(rtt.srtt_us, 210000);
    assert_int_equal(rtt.variation_us, 95000);
    cn_rtt_back_off(&rtt);
    assert_int_equal(cn_rtt_timeout_us(&rtt), 2 * (210000 + 4 * 95000));
    for (int i = 0; i < 20; i++)
        cn_rtt_back_off(&rtt);
    assert_int_equal(cn_rtt_timeout_us(&rtt), 16000000);
    for (int i = 0; i < 40; i++)
        cn_rtt_add(&rtt, 10);
    assert_int_equal(cn_rtt_timeout_us(&rtt), 100000);
}

static void a_back_off_doubles_within_its_limits_and_jitters(void **state)
{
    struct cn_backoff backoff = {.min_ms = 100, .max_ms = 1000, .seed = 3};
    uint64_t expected = 100;
    uint64_t first;

    (void)state;
    for (int i = 0; i < 10; i++) {
        assert_in_range(cn_backoff_next_ms(&backoff), expected / 2, expected);
        expected = expected * 2 < 1000 ? expected * 2 : 1000;
    }
    backoff.tries = 0;
    first = cn_backoff_next_ms(&backoff);
    backoff.tries = 0;
    assert_true(first != cn_backoff_next_ms(&backoff));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_out_follows_the_round_trips),
        cmocka_unit_test(a_back_off_doubles_within_its_limits_and_jitters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
