// A member that lies about epochs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "tests/support/sim_group.h"

#define LEAP (1ull << 32)
#define LIAR 2u

static void say(struct cn_sim_group *group, uint32_t to, enum cn_membership_type type,
                uint64_t epoch)
{
    const struct cn_membership_message message = {
        .type = type, .epoch = epoch, .members = 7, .stay = {.boot_id = 99, .number = 1}};
    uint8_t bytes[CN_PEER_MESSAGE_MAX];

    cn_membership_receive(group->nodes[to].membership, LIAR, bytes,
                          cn_membership_encode(&message, bytes), group->now_ms);
}

static struct cn_sim_group *create_group(uint64_t seed)
{
    struct cn_sim_group *group = cn_sim_group_open(seed, 3);

    cn_sim_group_run(group, 1000);
    assert_true(cn_sim_group_agree(group, 7));
    return group;
}

// The liar falls silent; the two others have to find each other.
static void expect_others_meet(struct cn_sim_group *group, uint64_t within_ms)
{
    cn_sim_group_crash(group, LIAR, 1000000);
    cn_sim_group_leave(group, 0, LIAR);
    cn_sim_group_leave(group, 1, LIAR);
    cn_sim_group_run(group, within_ms);
    assert_true(cn_sim_group_agree(group, 3));
    assert_false(group->broken);
}

static void leaps_told_to_one_member_do_not_split_the_others(void **state)
{
    struct cn_sim_group *group = create_group(1);

    (void)state;
    for (uint64_t n = 1; n <= 5; n++)
        say(group, 0, CN_MEMBERSHIP_HEARTBEAT, n * LEAP + 33);
    expect_others_meet(group, 4000);
    cn_sim_group_close(group);
}

static void a_member_far_ahead_is_followed_within_seconds(void **state)
{
    struct cn_sim_group *group = create_group(2);

    (void)state;
    group->nodes[0].persisted_epoch = 5 * LEAP;
    cn_sim_group_crash(group, 0, 100);
    cn_sim_group_crash(group, LIAR, 1000000);
    cn_sim_group_run(group, 15000);
    assert_true(cn_sim_group_agree(group, 3));
    assert_true(group->nodes[1].persisted_epoch > 5 * LEAP);
    cn_sim_group_close(group);
}

static void a_liar_cannot_use_up_the_numbers(void **state)
{
    struct cn_sim_group *group = create_group(3);

    (void)state;
    cn_sim_group_leave(group, 0, UINT32_MAX);
    for (uint32_t n = 0; n < 1000; n++) {
        for (uint32_t bit = 32; bit < 64; bit++)
            say(group, 0, CN_MEMBERSHIP_JOIN, (1ull << bit) + n);
        say(group, 0, CN_MEMBERSHIP_JOIN, UINT64_MAX - 31 + LIAR);
        group->now_ms += 10;
    }
    expect_others_meet(group, 30000);
    assert_true(group->nodes[0].persisted_epoch < 40 * LEAP);
    cn_sim_group_close(group);
}

static void a_liar_is_named_once(void **state)
{
    struct cn_sim_group *group = create_group(4);
    uint32_t member = UINT32_MAX;

    (void)state;
    assert_false(cn_membership_leaps(group->nodes[0].membership, &member));
    say(group, 0, CN_MEMBERSHIP_HEARTBEAT, 2 * LEAP);
    assert_true(cn_membership_leaps(group->nodes[0].membership, &member));
    assert_int_equal(member, LIAR);
    say(group, 0, CN_MEMBERSHIP_HEARTBEAT, 3 * LEAP);
    assert_false(cn_membership_leaps(group->nodes[0].membership, &member));
    cn_sim_group_close(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaps_told_to_one_member_do_not_split_the_others),
        cmocka_unit_test(a_member_far_ahead_is_followed_within_seconds),
        cmocka_unit_test(a_liar_cannot_use_up_the_numbers),
        cmocka_unit_test(a_liar_is_named_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
