// How many commands an operator may send, and that others may send theirs meanwhile.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/control/operator_limit.h"

#define START_MS 1000000

static uint32_t take(struct cn_operator_limit *limit, uint32_t uid, unsigned times, uint64_t now_ms)
{
    uint32_t wait_s = 0;
    for (unsigned i = 0; i < times; i++)
        wait_s = cn_operator_limit_take(limit, uid, 7, now_ms);
    return wait_s;
}

static void a_minute_and_an_hour_have_their_limits(void **state)
{
    struct cn_operator_limit limit = {.count = 0};
    uint64_t now_ms = START_MS;
    (void)state;
    for (unsigned minute = 0; minute < CN_OPERATOR_HOUR / CN_OPERATOR_MINUTE; minute++) {
        assert_int_equal(take(&limit, 1, CN_OPERATOR_MINUTE, now_ms), 0);
        assert_in_range(take(&limit, 1, 1, now_ms + 1000), 1, 3600);
        now_ms += 60000;
    }
    assert_int_equal(take(&limit, 1, 1, now_ms), 3600 - (now_ms - START_MS) / 1000);
    assert_int_equal(take(&limit, 1, 1, START_MS + 3600000), 0);
}

static void an_operator_locks_out_no_other(void **state)
{
    struct cn_operator_limit limit = {.count = 0};
    (void)state;
    assert_int_equal(take(&limit, 1, 1000, START_MS), 60);
    for (uint32_t uid = 2; uid <= CN_OPERATOR_USERS; uid++)
        assert_int_equal(take(&limit, uid, CN_OPERATOR_MINUTE, START_MS), 0);
    assert_int_equal(take(&limit, CN_OPERATOR_USERS + 1, 1, START_MS), 60); // shares the last place
    // Places of users who were here an hour ago are given to others.
    assert_int_equal(take(&limit, CN_OPERATOR_USERS + 2, 1, START_MS + 3600000), 0);
    assert_int_equal(take(&limit, 1, 1, START_MS + 3600000), 0);
}

static void processes_of_hidden_users_lock_out_no_other(void **state)
{
    struct cn_operator_limit limit = {.count = 0};
    const uint32_t hidden = CN_OPERATOR_HIDDEN;
    (void)state;
    for (unsigned i = 0; i <= CN_OPERATOR_MINUTE; i++)
        (void)cn_operator_limit_take(&limit, hidden, 100, START_MS);
    assert_int_equal(cn_operator_limit_take(&limit, hidden, 100, START_MS), 60);
    for (int32_t pid = 101; pid < 200; pid++)
        for (unsigned i = 0; i < CN_OPERATOR_MINUTE; i++)
            assert_int_equal(cn_operator_limit_take(&limit, hidden, pid, START_MS + 1), 0);
    assert_int_equal(take(&limit, 5, CN_OPERATOR_MINUTE, START_MS + 1), 0);
    assert_in_range(take(&limit, 5, 1, START_MS + 1), 1, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_minute_and_an_hour_have_their_limits),
        cmocka_unit_test(an_operator_locks_out_no_other),
        cmocka_unit_test(processes_of_hidden_users_lock_out_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
