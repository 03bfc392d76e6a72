// Sizes of buckets from what calls take.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "runtime/group/bucket_tuner.h"

#define MIB ((size_t)1 << 20)

// A window of steps over a link: latency and microseconds of a byte.
static size_t run_window(struct cn_bucket_tuner *tuner, size_t total, size_t now, double latency_us,
                         double byte_us, double compute_us)
{
    for (int i = 0; i < CN_TUNER_STEPS; i++) {
        double waits = i % 4 ? 1000 : 0; // most calls wait for a slower member

        cn_bucket_tuner_add(tuner, 64, latency_us + waits);
        cn_bucket_tuner_add(tuner, now, byte_us * (double)now + waits);
        now = cn_bucket_tuner_step(tuner, total, compute_us, now);
    }
    return now;
}

static void nothing_changes_before_a_window_has_ended(void **state)
{
    struct cn_bucket_tuner tuner = {0};

    (void)state;
    for (int i = 1; i < CN_TUNER_STEPS; i++) {
        cn_bucket_tuner_add(&tuner, 64, 100);
        cn_bucket_tuner_add(&tuner, MIB, 1e5);
        assert_int_equal(cn_bucket_tuner_step(&tuner, 100 * MIB, 1e6, MIB), MIB);
    }
}

static void the_size_balances_latency_and_bytes(void **state)
{
    struct cn_bucket_tuner tuner = {0};
    // sqrt(100 us * 16 MiB / 0.001 us) is 1.24 MiB.
    size_t size = run_window(&tuner, 16 * MIB, 8 * MIB, 100, 0.001, 0);

    (void)state;
    assert_in_range(size, MIB, 3 * MIB / 2);
    // Four times the latency: twice the size.
    assert_in_range(run_window(&tuner, 16 * MIB, size, 400, 0.001, 0), 2 * MIB, 3 * MIB);
}

static void a_little_better_is_not_worth_a_change(void **state)
{
    struct cn_bucket_tuner tuner = {0};

    (void)state;
    assert_int_equal(run_window(&tuner, 16 * MIB, MIB, 100, 0.001, 0), MIB);
}

static void a_link_that_becomes_slow_is_followed(void **state)
{
    struct cn_bucket_tuner tuner = {0};
    size_t fast = run_window(&tuner, 64 * MIB, MIB, 300, 0.002, 0);
    size_t slow = run_window(&tuner, 64 * MIB, fast, 300, 0.8, 0);

    (void)state;
    assert_true(slow < fast / 4);
}

static void sizes_stay_within_the_least_and_all(void **state)
{
    struct cn_bucket_tuner tuner = {0};

    (void)state;
    assert_int_equal(run_window(&tuner, 64 * MIB, MIB, 1, 10, 0), CN_BUCKET_LEAST);
    assert_int_equal(run_window(&tuner, 2 * MIB, MIB / 2, 1e6, 1e-6, 0), 2 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_changes_before_a_window_has_ended),
        cmocka_unit_test(the_size_balances_latency_and_bytes),
        cmocka_unit_test(a_little_better_is_not_worth_a_change),
        cmocka_unit_test(a_link_that_becomes_slow_is_followed),
        cmocka_unit_test(sizes_stay_within_the_least_and_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
