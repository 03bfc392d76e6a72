// Which members of a group have the samples that a chain trains.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/round/session/session_chain.h"

static void one_member_with_other_samples_does_not_stop_the_others(void **state)
{
    (void)state;
    assert_int_equal(cn_session_most_frequent((const int64_t[]){9, 5, 5, 5}, 4), 1);
    assert_int_equal(cn_session_most_frequent((const int64_t[]){5, 5, 9, 5}, 4), 0);
    assert_int_equal(cn_session_most_frequent((const int64_t[]){7, 9, 5, 5, 9, 5}, 6), 2);
}

static void of_samples_that_as_many_have_the_lowest_rank_decides(void **state)
{
    (void)state;
    assert_int_equal(cn_session_most_frequent((const int64_t[]){9, 5}, 2), 0);
    assert_int_equal(cn_session_most_frequent((const int64_t[]){7, 5, 9, 9, 5}, 5), 1);
    assert_int_equal(cn_session_most_frequent((const int64_t[]){3}, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_member_with_other_samples_does_not_stop_the_others),
        cmocka_unit_test(of_samples_that_as_many_have_the_lowest_rank_decides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
