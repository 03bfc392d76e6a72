// The time that members wait for others that answer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "runtime/group/patience.h"

static void members_that_are_all_there_again_are_waited_for_longer(void **state)
{
    struct cn_patience patience = {0};
    (void)state;
    assert_int_equal(cn_patience_begin(&patience, 1000, 7), 1000);
    cn_patience_ran_out(&patience, 1000, 7);
    assert_int_equal(cn_patience_begin(&patience, 1000, 7), 4000);
    cn_patience_ran_out(&patience, 4000, 7);
    assert_int_equal(cn_patience_begin(&patience, 1000, 7), 16000);
    // An epoch that ended for another reason keeps what was found out.
    assert_int_equal(cn_patience_begin(&patience, 1000, 7), 16000);
}

static void other_members_are_waited_for_as_the_profile_says(void **state)
{
    struct cn_patience patience = {0};
    (void)state;
    cn_patience_ran_out(&patience, 1000, 7);
    assert_int_equal(cn_patience_begin(&patience, 1000, 3), 1000); // the third one hung
    assert_int_equal(cn_patience_begin(&patience, 1000, 7), 1000);
}

static void nobody_is_waited_for_without_end(void **state)
{
    struct cn_patience patience = {0};
    uint32_t ms = 100;
    (void)state;
    for (int i = 0; i < 20; i++) {
        cn_patience_ran_out(&patience, ms, 1);
        ms = cn_patience_begin(&patience, 100, 1);
    }
    assert_int_equal(ms, CN_PATIENCE_MOST_MS);
    cn_patience_ran_out(&patience, UINT32_MAX, 1); // group.timeout of more than that is kept
    assert_int_equal(cn_patience_begin(&patience, UINT32_MAX, 1), UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_that_are_all_there_again_are_waited_for_longer),
        cmocka_unit_test(other_members_are_waited_for_as_the_profile_says),
        cmocka_unit_test(nobody_is_waited_for_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
