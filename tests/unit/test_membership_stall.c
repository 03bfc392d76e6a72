// Members that answer but hold up the calls of their group.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <string.h>

#include "tests/support/sim_group.h"

#define WAIT_MS 60000u
#define NOBODY UINT32_MAX

static struct cn_sim_group *create_group(uint64_t seed, uint32_t count)
{
    struct cn_sim_group *group = cn_sim_group_open(seed, count);

    cn_sim_group_run(group, 1000);
    assert_true(cn_sim_group_agree(group, (1u << count) - 1));
    return group;
}

// Plays an epoch in which the staller holds up the calls. All in its view see that. Member i knows
// the staller only if bit i of `sure` is set. Returns the members that somebody leaves out then.
static uint32_t stall(struct cn_sim_group *group, uint32_t staller, uint32_t sure)
{
    uint32_t out = 0, member;

    for (uint32_t i = 0; i < group->count; i++) {
        struct cn_sim_node *node = &group->nodes[i];

        if (i == staller || !node->in_view)
            continue;
        if (cn_membership_stalled(node->membership, WAIT_MS, sure >> i & 1 ? staller : NOBODY,
                                  group->now_ms, &member))
            out |= 1u << member;
    }
    for (uint32_t i = 0; i < group->count; i++)
        if (group->nodes[i].in_view)
            cn_sim_group_leave(group, i, NOBODY);
    cn_sim_group_run(group, 3000);
    return out;
}

static void a_member_that_stalls_is_left_out_after_three_epochs(void **state)
{
    struct cn_sim_group *group = create_group(1, 3);
    struct cn_member names[3] = {{.name = "board-1"}, {.name = "board-2"}, {.name = "board-3"}};
    char text[200];

    (void)state;
    assert_int_equal(stall(group, 1, 1), 0);
    assert_int_equal(stall(group, 1, 1), 0);
    assert_int_equal(stall(group, 1, 1), 1u << 1);
    assert_true(cn_sim_group_agree(group, 5));
    cn_membership_describe(group->nodes[0].membership, names, group->now_ms, text, sizeof(text));
    assert_non_null(strstr(text, "board-2 is left out for"));
    cn_sim_group_close(group);
}

static void it_is_left_out_for_longer_each_time(void **state)
{
    struct cn_sim_group *group = create_group(2, 3);

    (void)state;
    for (int i = 0; i < 3; i++)
        stall(group, 2, 1);
    assert_true(cn_sim_group_agree(group, 3));
    cn_sim_group_run(group, 2 * WAIT_MS);
    assert_true(cn_sim_group_agree(group, 7));
    assert_int_equal(stall(group, 2, 0), 1u << 2);
    cn_sim_group_run(group, 3 * WAIT_MS);
    assert_true(cn_sim_group_agree(group, 3));
    cn_sim_group_close(group);
}

// Whom the leader waits for may itself wait for the staller.
static void an_innocent_member_comes_back_and_the_staller_is_found(void **state)
{
    struct cn_sim_group *group = create_group(3, 4);

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(stall(group, 1, 0), 0);
    assert_int_equal(stall(group, 1, 0), 1u << 3);
    assert_int_equal(stall(group, 1, 0), 1u << 2);
    assert_true(cn_sim_group_agree(group, 1 | 2 | 8));
    assert_int_equal(stall(group, 1, 0), 1u << 1);
    assert_true(cn_sim_group_agree(group, 1 | 4 | 8));
    cn_sim_group_close(group);
}

static void a_leader_that_stalls_is_left_out_by_the_others(void **state)
{
    struct cn_sim_group *group = create_group(4, 3);
    int epochs = 1;

    (void)state;
    while (!stall(group, 0, 0) && epochs < 10)
        epochs++;
    assert_int_equal(epochs, 4);
    cn_sim_group_run(group, 3000);
    assert_true(cn_sim_group_agree(group, 6));
    cn_sim_group_close(group);
}

static void rare_waits_leave_nobody_out(void **state)
{
    struct cn_sim_group *group = create_group(5, 3);

    (void)state;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(stall(group, 1, 1), 0);
        cn_sim_group_run(group, 3700000);
    }
    cn_sim_group_close(group);
}

// Else a JOIN would keep the others from training for 49 days.
static void a_join_makes_nobody_wait_longer_than_the_own_profile_says(void **state)
{
    struct cn_sim_group *group = create_group(6, 4);
    struct cn_membership_message join = {.type = CN_MEMBERSHIP_JOIN,
                                         .epoch = 1600,
                                         .members = 15,
                                         .stay = {.boot_id = 99, .number = 1},
                                         .patience_ms = UINT32_MAX};
    uint8_t bytes[CN_PEER_MESSAGE_MAX];

    (void)state;
    cn_sim_group_crash(group, 2, 10000000);
    cn_sim_group_crash(group, 3, 10000000);
    cn_sim_group_leave(group, 0, 3);
    cn_sim_group_leave(group, 1, 3);
    for (uint32_t n = 0; n < 60; n++) {
        size_t size = cn_membership_encode(&join, bytes);

        cn_membership_receive(group->nodes[0].membership, 2, bytes, size, group->now_ms);
        cn_membership_receive(group->nodes[1].membership, 2, bytes, size, group->now_ms);
        cn_sim_group_run(group, 100);
        if (cn_sim_group_agree(group, 3))
            break;
    }
    assert_true(cn_sim_group_agree(group, 3));
    cn_sim_group_close(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_stalls_is_left_out_after_three_epochs),
        cmocka_unit_test(it_is_left_out_for_longer_each_time),
        cmocka_unit_test(an_innocent_member_comes_back_and_the_staller_is_found),
        cmocka_unit_test(a_leader_that_stalls_is_left_out_by_the_others),
        cmocka_unit_test(rare_waits_leave_nobody_out),
        cmocka_unit_test(a_join_makes_nobody_wait_longer_than_the_own_profile_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
