#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "runtime/group/balance.h"

// So many steps of places that take ms for a micro-batch each.
static void measure(struct cn_balance *balance, const uint32_t *micro, const double *ms,
                    uint32_t count, uint32_t steps)
{
    for (uint32_t step = 0; step < steps; step++) {
        double computed[CN_GROUP_MAX];

        for (uint32_t p = 0; p < count; p++)
            computed[p] = micro[p] * ms[p];
        cn_balance_add(balance, micro, computed, count);
    }
}

static void micro_batches_follow_the_speed_and_their_number_stays(void **state)
{
    struct cn_balance balance = {0};
    uint32_t micro[] = {4, 4, 4};

    (void)state;
    measure(&balance, micro, (double[]){10, 20, 10}, 3, 20);
    assert_true(cn_balance_divide(&balance, 3, micro));
    assert_int_equal(micro[0] + micro[1] + micro[2], 12);
    assert_int_equal(micro[1], 2);
}

static void a_difference_below_a_tenth_changes_nothing(void **state)
{
    struct cn_balance balance = {0};
    uint32_t micro[] = {20, 20};

    (void)state;
    measure(&balance, micro, (double[]){10, 11.5}, 2, 50);
    assert_false(cn_balance_divide(&balance, 2, micro));
    measure(&balance, micro, (double[]){10, 14}, 2, 50);
    assert_true(cn_balance_divide(&balance, 2, micro));
    assert_false(cn_balance_divide(&balance, 2, micro));
}

static void the_first_steps_and_places_without_a_time_change_nothing(void **state)
{
    struct cn_balance balance = {0};
    uint32_t micro[] = {4, 4};

    (void)state;
    measure(&balance, micro, (double[]){10, 90}, 2, 7);
    assert_false(cn_balance_divide(&balance, 2, micro));
    measure(&balance, micro, (double[]){10, 90}, 2, 1);
    balance.ms[1] = 0;
    assert_false(cn_balance_divide(&balance, 2, micro));
}

static void a_place_that_has_none_is_tried_again(void **state)
{
    struct cn_balance balance = {0};
    uint32_t micro[] = {1, 1}, steps = 0;

    (void)state;
    measure(&balance, micro, (double[]){10, 90}, 2, 20);
    assert_true(cn_balance_divide(&balance, 2, micro));
    assert_int_equal(micro[0], 2);
    assert_int_equal(micro[1], 0);
    do {
        measure(&balance, micro, (double[]){10, 5}, 2, 1);
        steps++;
    } while (!cn_balance_divide(&balance, 2, micro) && steps < 1000);
    assert_int_equal(micro[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_follow_the_speed_and_their_number_stays),
        cmocka_unit_test(a_difference_below_a_tenth_changes_nothing),
        cmocka_unit_test(the_first_steps_and_places_without_a_time_change_nothing),
        cmocka_unit_test(a_place_that_has_none_is_tried_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
