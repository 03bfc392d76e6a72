// What members of a group know of each other's pair keys.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <string.h>

#include "tests/support/sim_group.h"

static void a_member_without_a_key_is_not_waited_for(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(1, 3);
    struct cn_member names[3] = {{.name = "board-1"}, {.name = "board-2"}, {.name = "board-3"}};
    char text[200];

    (void)state;
    group->keyless = 4;
    for (uint32_t i = 0; i < 3; i++)
        cn_sim_group_crash(group, i, i == 2 ? 1000000 : 0);
    cn_sim_group_run(group, CN_SIM_FORM_MS / 2);
    assert_true(cn_sim_group_agree(group, 3));
    cn_membership_describe(group->nodes[0].membership, names, group->now_ms, text, sizeof(text));
    assert_non_null(strstr(text, "board-3 has no key: it is not enrolled, or revoked"));
    cn_sim_group_close(group);
}

static uint32_t behind(const struct cn_sim_group *group, uint32_t node, uint64_t key_epoch)
{
    return cn_membership_keys_behind(group->nodes[node].membership, key_epoch, group->now_ms);
}

static void members_hear_of_each_others_keys(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(2, 3);

    (void)state;
    cn_sim_group_run(group, 1000);
    assert_true(cn_sim_group_agree(group, 7));
    assert_int_equal(behind(group, 0, 0), 0);
    assert_int_equal(behind(group, 0, 1), 6);
    cn_membership_hold_keys(group->nodes[1].membership, 1);
    cn_sim_group_run(group, 500); // a heartbeat
    assert_int_equal(behind(group, 0, 1), 4);
    assert_int_equal(behind(group, 2, 1), 1);
    assert_int_equal(cn_membership_newest_keys(group->nodes[0].membership, group->now_ms), 1);
    cn_sim_group_crash(group, 1, 1000000); // it is not heard any more: its word does not count
    cn_sim_group_run(group, 2500);
    assert_int_equal(cn_membership_newest_keys(group->nodes[0].membership, group->now_ms), 0);
    cn_sim_group_close(group);
}

// It has gone over to other keys, or is off: either way nothing is gained by waiting.
static void a_member_that_is_not_heard_is_not_behind(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(3, 3);

    (void)state;
    cn_sim_group_run(group, 1000);
    cn_sim_group_crash(group, 2, 1000000);
    cn_sim_group_run(group, 2500);
    assert_int_equal(behind(group, 0, 1), 2);
    cn_sim_group_close(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_without_a_key_is_not_waited_for),
        cmocka_unit_test(members_hear_of_each_others_keys),
        cmocka_unit_test(a_member_that_is_not_heard_is_not_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
