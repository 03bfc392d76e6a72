// The window beside a flow that keeps a queue: how it grows and when it yields.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transport/transfer/rival.h"

#define UNIT 1000
#define RTT_US 100000

// A round trip in which a share of the window was lost.
static void pass(struct cn_rival *rival, double lost, uint64_t rtt_us, uint64_t *now_us)
{
    uint64_t bytes = (uint64_t)rival->window;

    *now_us += rtt_us;
    cn_rival_round(rival, UNIT, (uint64_t)(lost * rival->window), bytes, true, rtt_us, *now_us);
}

static void the_window_doubles_while_that_raises_the_rate(void **state)
{
    struct cn_rival rival;
    uint64_t now_us = 1000000;

    (void)state;
    cn_rival_begin(&rival, 10 * UNIT);
    for (int i = 0; i < 6; i++)
        pass(&rival, 0, RTT_US, &now_us); // the round trip stays, so the rate follows the window
    assert_true(rival.window >= 80 * UNIT);
    assert_false(rival.useless);
}

static void doubling_that_only_makes_the_queue_longer_ends(void **state)
{
    struct cn_rival rival;
    uint64_t now_us = 1000000;

    (void)state;
    cn_rival_begin(&rival, 10 * UNIT);
    for (int i = 0; i < 6; i++)
        pass(&rival, 0, (uint64_t)(RTT_US * rival.window / (10 * UNIT)), &now_us);
    assert_true(rival.useless);
    assert_true(rival.window < 20 * UNIT);
}

static void much_loss_takes_a_doubling_back_and_the_fourth_ends_it(void **state)
{
    struct cn_rival rival;
    uint64_t now_us = 1000000;
    double before;

    (void)state;
    cn_rival_begin(&rival, 10 * UNIT);
    for (int i = 0; i < 3; i++) {
        pass(&rival, 0, RTT_US, &now_us);
        pass(&rival, 0, RTT_US, &now_us);
        before = rival.window;
        pass(&rival, 0.5, RTT_US, &now_us);
        pass(&rival, 0.5, RTT_US, &now_us); // still losses of the same window
        assert_int_equal((int)rival.window, (int)before / 2);
        assert_true(rival.most <= 0);
    }
    pass(&rival, 0, RTT_US, &now_us);
    pass(&rival, 0, RTT_US, &now_us);
    before = rival.window;
    pass(&rival, 0.5, RTT_US, &now_us);
    assert_int_equal((int)rival.window, (int)(0.7 * before));
    for (int i = 0; i < 600; i++)
        pass(&rival, 0, RTT_US, &now_us);
    assert_true(rival.window > before);
}

static void a_loss_of_a_few_in_a_hundred_does_not_lower_it(void **state)
{
    struct cn_rival rival;
    uint64_t now_us = 1000000;
    double before;

    (void)state;
    cn_rival_begin(&rival, 100 * UNIT);
    pass(&rival, 0.5, RTT_US, &now_us);
    before = rival.window;
    pass(&rival, 0, RTT_US, &now_us);
    pass(&rival, 0.015, RTT_US, &now_us);
    assert_true(rival.window >= before);
}

static void losses_that_are_undone_restore_it(void **state)
{
    struct cn_rival rival;
    uint64_t now_us = 1000000;

    (void)state;
    cn_rival_begin(&rival, 100 * UNIT);
    pass(&rival, 0.5, RTT_US, &now_us);
    for (int i = 0; i < 24; i++)
        cn_rival_undo(&rival, UNIT);
    assert_true(rival.window < 100 * UNIT);
    cn_rival_undo(&rival, 2 * UNIT);
    assert_int_equal((int)rival.window, 100 * UNIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_window_doubles_while_that_raises_the_rate),
        cmocka_unit_test(doubling_that_only_makes_the_queue_longer_ends),
        cmocka_unit_test(much_loss_takes_a_doubling_back_and_the_fourth_ends_it),
        cmocka_unit_test(a_loss_of_a_few_in_a_hundred_does_not_lower_it),
        cmocka_unit_test(losses_that_are_undone_restore_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
