// Sizes of buckets and windows from what calls take; the tests' own clock says how long that is.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "runtime/group/bucket_tuner.h"

#define MIB ((size_t)1 << 20)

struct tuner_world {
    struct cn_bucket_tuner tuner;
    struct cn_bucket_choice choice;
    size_t total;
    struct cn_bucket_costs link;
    double compute_us;
    uint32_t steps, shifts, choices;
    uint32_t shifted_at; // step
};

static const struct tuner_world fast_link = {
    .choice = {MIB, 1}, .total = 16 * MIB, .link = {300, 0.002}, .compute_us = 1e5};

// One step: most calls wait for a slower member, a few do not.
static void step(struct tuner_world *world)
{
    const struct cn_bucket_costs *link = &world->link;
    size_t bytes = world->choice.bucket < world->total ? world->choice.bucket : world->total;
    double waits = world->steps++ % 4 ? 1000 : 0;
    enum cn_tuner_event event;

    cn_bucket_tuner_add(&world->tuner, 64, link->latency_us + waits);
    cn_bucket_tuner_add(&world->tuner, bytes,
                        link->latency_us + link->byte_us * (double)bytes + waits);
    event = cn_bucket_tuner_step(&world->tuner, world->total, world->compute_us, &world->choice);
    world->choices += event == CN_TUNER_CHOSE;
    world->shifts += event == CN_TUNER_SHIFTED;
    if (event == CN_TUNER_SHIFTED)
        world->shifted_at = world->steps;
}

static void steps(struct tuner_world *world, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        step(world);
}

// Waited for after the backward pass with this choice.
static double exposed(const struct tuner_world *world, size_t bucket, uint32_t window)
{
    const struct cn_bucket_choice choice = {bucket, window};

    return cn_bucket_tuner_exposed(&world->link, world->total,
                                   0.6 * world->compute_us / (double)world->total, &choice);
}

static void nothing_changes_before_a_span_has_ended(void **state)
{
    struct tuner_world world = fast_link;

    (void)state;
    steps(&world, CN_TUNER_STEPS - 1);
    assert_int_equal(world.choices, 0);
    assert_int_equal(world.choice.bucket, MIB);
    step(&world);
    assert_int_equal(world.choices, 1);
}

static void no_other_size_or_window_is_waited_for_much_less(void **state)
{
    static const double latencies[] = {20, 300, 5000}, bytes[] = {0.0001, 0.002, 0.08, 1},
                        computes[] = {0, 1e4, 1e6};

    (void)state;
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 3; c++) {
                struct tuner_world world = fast_link;
                double chosen;

                world.link = (struct cn_bucket_costs){latencies[a], bytes[b]};
                world.compute_us = computes[c];
                steps(&world, CN_TUNER_STEPS);
                chosen = exposed(&world, world.choice.bucket, world.choice.window);
                for (size_t bucket = 256 << 10; bucket <= world.total; bucket *= 2)
                    for (uint32_t window = 1; window <= CN_WINDOW_MOST; window *= 2)
                        assert_true(chosen <= 1.2 * exposed(&world, bucket, window));
            }
}

static void calls_that_cost_much_are_few(void **state)
{
    struct tuner_world cheap = fast_link, dear = fast_link;

    (void)state;
    cheap.link = (struct cn_bucket_costs){50, 0.01};
    dear.link = (struct cn_bucket_costs){50000, 0.01};
    steps(&cheap, CN_TUNER_STEPS);
    steps(&dear, CN_TUNER_STEPS);
    assert_true(dear.choice.bucket * dear.choice.window >
                2 * cheap.choice.bucket * cheap.choice.window);
}

// The wire is the bottleneck: begin early with a small bucket, then pay for few calls.
static void a_window_lets_the_first_bucket_be_small(void **state)
{
    struct tuner_world world = fast_link;

    (void)state;
    world.link = (struct cn_bucket_costs){4000, 0.01};
    steps(&world, CN_TUNER_STEPS);
    assert_true(world.choice.window > 1);
    assert_true(exposed(&world, world.choice.bucket, world.choice.window) <
                exposed(&world, world.choice.bucket, 1));
}

static void a_little_better_is_not_worth_a_change(void **state)
{
    struct tuner_world world = fast_link;
    struct cn_bucket_choice chosen;

    (void)state;
    steps(&world, CN_TUNER_STEPS);
    chosen = world.choice;
    world.tuner = (struct cn_bucket_tuner){0};
    world.link.latency_us *= 1.05;
    steps(&world, CN_TUNER_STEPS);
    assert_int_equal(world.choices, 2);
    assert_int_equal(world.choice.bucket, chosen.bucket);
    assert_int_equal(world.choice.window, chosen.window);
}

static void a_link_that_stays_another_one_is_measured_anew(void **state)
{
    static const double factors[] = {1.4, 10, 0.7, 0.2};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct tuner_world world = fast_link;

        steps(&world, 10 * CN_TUNER_STEPS);
        assert_int_equal(world.choices, 1);
        assert_int_equal(world.shifts, 0);
        world.link.byte_us *= factors[i];
        steps(&world, 10 * CN_TUNER_STEPS);
        assert_int_equal(world.shifts, 1);
        assert_int_equal(world.choices, 2);
        assert_int_equal(world.shifted_at, 12 * CN_TUNER_STEPS);
        assert_true(world.tuner.settled.byte_us > 0.9 * world.link.byte_us &&
                    world.tuner.settled.byte_us < 1.1 * world.link.byte_us);
    }
}

static void what_passes_or_is_less_than_a_quarter_changes_nothing(void **state)
{
    struct tuner_world world = fast_link;

    (void)state;
    steps(&world, 2 * CN_TUNER_STEPS);
    world.link.byte_us *= 5; // for one span
    steps(&world, CN_TUNER_STEPS);
    world.link.byte_us /= 5;
    steps(&world, 5 * CN_TUNER_STEPS);
    world.link.byte_us *= 1.2; // for good
    steps(&world, 5 * CN_TUNER_STEPS);
    assert_int_equal(world.shifts, 0);
    assert_int_equal(world.choices, 1);
}

static void sizes_stay_within_the_least_and_all(void **state)
{
    struct tuner_world world = fast_link;

    (void)state;
    world.total = 2 * MIB;
    world.link = (struct cn_bucket_costs){1, 10};
    steps(&world, CN_TUNER_STEPS);
    assert_true(world.choice.bucket >= CN_BUCKET_LEAST);
    world = fast_link;
    world.total = 2 * MIB;
    world.choice.bucket = CN_BUCKET_LEAST;
    world.link = (struct cn_bucket_costs){1e6, 1e-6};
    steps(&world, CN_TUNER_STEPS);
    assert_int_equal(world.choice.bucket, world.total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_changes_before_a_span_has_ended),
        cmocka_unit_test(no_other_size_or_window_is_waited_for_much_less),
        cmocka_unit_test(calls_that_cost_much_are_few),
        cmocka_unit_test(a_window_lets_the_first_bucket_be_small),
        cmocka_unit_test(a_little_better_is_not_worth_a_change),
        cmocka_unit_test(a_link_that_stays_another_one_is_measured_anew),
        cmocka_unit_test(what_passes_or_is_less_than_a_quarter_changes_nothing),
        cmocka_unit_test(sizes_stay_within_the_least_and_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
