// The numbers that processes of a board register with.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "aggregator/roster/instances.h"

static void two_that_take_turns_are_found_once(void **state)
{
    struct cn_instances instances = {0};

    (void)state;
    assert_false(cn_instances_note(&instances, 7, "10.0.0.7:1", 1000));
    assert_false(cn_instances_note(&instances, 8, "10.0.0.8:1", 2000));
    assert_true(cn_instances_note(&instances, 7, "10.0.0.7:2", 3000));
    assert_string_equal(instances.twice, "from 10.0.0.7:2 and 10.0.0.8:1");
    assert_false(cn_instances_note(&instances, 8, "10.0.0.8:1", 4000)); // said already
    assert_int_equal(instances.twice_ms, 4000);
    assert_true(cn_instances_note(&instances, 7, "10.0.0.7:2", 4001 + CN_INSTANCES_SHOWN_MS));
}

static void restarts_and_new_addresses_are_one_board(void **state)
{
    struct cn_instances instances = {0};

    (void)state;
    for (uint64_t number = 1; number < 3 * CN_INSTANCES; number++) { // started again and again
        assert_false(cn_instances_note(&instances, number, "10.0.0.7:1", number));
        assert_false(cn_instances_note(&instances, number, "10.0.0.9:1", number)); // it moves
    }
    assert_false(cn_instances_note(&instances, 0, "10.0.0.7:1", 100)); // of an earlier release
    assert_false(cn_instances_note(&instances, 0, "10.0.0.8:1", 100));
    assert_false(cn_instances_note(&instances, 3 * CN_INSTANCES - 1, "10.0.0.7:1", 101));
    assert_int_equal(instances.twice_ms, 0);
}

static void a_number_of_long_ago_says_nothing(void **state)
{
    struct cn_instances instances = {0};

    (void)state;
    assert_false(cn_instances_note(&instances, 7, "a:1", 1000));
    assert_false(cn_instances_note(&instances, 8, "b:1", 2000));
    assert_false(cn_instances_note(&instances, 7, "a:1", 1001 + CN_INSTANCES_FORGET_MS));
    assert_int_equal(instances.twice_ms, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_that_take_turns_are_found_once),
        cmocka_unit_test(restarts_and_new_addresses_are_one_board),
        cmocka_unit_test(a_number_of_long_ago_says_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
