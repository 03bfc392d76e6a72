#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sim_group.h"

#define STEP_MS 100

static const struct cn_member names[3] = {
    {.name = "a"}, {.name = "b", .address = "b.lan:7100"}, {.name = "c"}};

// Member 1 speaks for itself, to the board of member 0.
static void say(struct cn_sim_group *group, const struct cn_membership_message *message)
{
    uint8_t bytes[CN_PEER_MESSAGE_MAX];
    size_t size = cn_membership_encode(message, bytes);

    cn_membership_receive(group->nodes[0].membership, 1, bytes, size, group->now_ms);
}

static void join(struct cn_sim_group *group, uint64_t boot_id, uint32_t stay)
{
    const struct cn_membership_message message = {
        .type = CN_MEMBERSHIP_JOIN, .stay = {boot_id, stay}, .patience_ms = 1000};

    say(group, &message);
}

// A group of three of which member 1 is played by the test.
static struct cn_sim_group *begin(uint64_t seed)
{
    struct cn_sim_group *group = cn_sim_group_open(seed, 3);

    cn_sim_group_crash(group, 1, 1000000);
    return group;
}

static void refused(struct cn_sim_group *group, const char *why)
{
    uint32_t member = UINT32_MAX;
    char text[CN_REFUSAL_SIZE];

    assert_true(cn_membership_refused(group->nodes[0].membership, group->now_ms, &member));
    assert_int_equal(member, 1);
    cn_membership_explain(group->nodes[0].membership, names, member, text, sizeof(text));
    assert_string_equal(text, why);
    assert_false(
        cn_membership_refused(group->nodes[0].membership, group->now_ms, &member)); // told once
}

static bool is_left_out(const struct cn_sim_group *group)
{
    char text[256];

    cn_membership_describe(group->nodes[0].membership, names, group->now_ms, text, sizeof(text));
    return strstr(text, "two boards call themselves b") != NULL;
}

static void two_boards_of_one_name_are_left_out_until_one_is_gone(void **state)
{
    struct cn_sim_group *group = begin(1);
    uint32_t member;

    (void)state;
    for (uint32_t i = 0; i < 40; i++) {
        join(group, 100 + i % 2, 1);
        cn_sim_group_run(group, STEP_MS);
    }
    refused(group, "two boards call themselves b, one is to be at b.lan:7100");
    cn_sim_group_run(group, CN_SIM_FORM_MS);
    assert_true(cn_sim_group_agree(group, 5)); // the rest goes on
    for (uint32_t i = 0; i < 250; i++) {
        assert_true(is_left_out(group));
        join(group, 100, 1);
        cn_sim_group_run(group, STEP_MS);
    }
    for (uint32_t i = 0; i < 100; i++) {
        join(group, 100, 1);
        cn_sim_group_run(group, STEP_MS);
    }
    assert_false(is_left_out(group));
    assert_false(cn_membership_refused(group->nodes[0].membership, group->now_ms, &member));
    cn_sim_group_close(group);
}

static void a_restart_is_no_second_board(void **state)
{
    struct cn_sim_group *group = begin(2);
    uint32_t member;

    (void)state;
    for (uint64_t boot = 1; boot < 8; boot++) {
        for (uint32_t i = 0; i < 5; i++) {
            join(group, boot, 1);
            cn_sim_group_run(group, STEP_MS);
        }
        join(group, boot + 1, 1);
        join(group, boot, 1); // was on its way
        cn_sim_group_run(group, STEP_MS);
    }
    for (uint32_t i = 0; i < 40; i++) {
        join(group, 8, 1 + i / 10);
        cn_sim_group_run(group, STEP_MS);
    }
    assert_false(cn_membership_refused(group->nodes[0].membership, group->now_ms, &member));
    cn_sim_group_close(group);
}

static void a_board_that_joins_has_no_old_view(void **state)
{
    struct cn_membership_message busy = {.type = CN_MEMBERSHIP_BUSY, .epoch = 33, .members = 2};
    struct cn_sim_group *group = begin(3);
    uint32_t member;

    (void)state;
    for (uint32_t i = 0; i < 32; i++) {
        busy.since_ms = 5000; // of the view before the JOINs: it was on its way
        if (i == 10)
            say(group, &busy);
        join(group, 100, 1);
        cn_sim_group_run(group, STEP_MS);
    }
    assert_false(cn_membership_refused(group->nodes[0].membership, group->now_ms, &member));
    busy.since_ms = 8000; // 2 s later it is another board's
    cn_sim_group_run(group, STEP_MS);
    say(group, &busy);
    refused(group, "two boards call themselves b, one is to be at b.lan:7100");
    cn_sim_group_close(group);
}

static void what_came_while_this_board_stood_still_makes_no_second_board(void **state)
{
    struct cn_membership_message busy = {.type = CN_MEMBERSHIP_BUSY, .epoch = 33, .members = 2};
    struct cn_sim_group *group = begin(6);
    uint32_t member;

    (void)state;
    for (uint32_t i = 0; i < 10; i++) // all of ten seconds, now
        join(group, 100, 1);
    for (uint32_t i = 0; i < 9; i++) {
        busy.since_ms = 1000 * i;
        say(group, &busy);
    }
    for (uint32_t i = 0; i < 40; i++) { // it ends a long step
        busy.since_ms = 9000 + i * STEP_MS;
        say(group, &busy);
        cn_sim_group_run(group, STEP_MS);
    }
    assert_false(cn_membership_refused(group->nodes[0].membership, group->now_ms, &member));
    cn_sim_group_close(group);
}

static void another_release_is_left_out_by_name(void **state)
{
    const struct cn_membership_message message = {
        .type = CN_MEMBERSHIP_HEARTBEAT, .epoch = 16, .members = 3};
    uint16_t own = cn_membership_release();
    struct cn_sim_group *group = begin(4);
    uint8_t bytes[CN_PEER_MESSAGE_MAX];
    size_t size = cn_membership_encode(&message, bytes);
    char wanted[CN_REFUSAL_SIZE];

    (void)state;
    snprintf(wanted, sizeof(wanted), "b runs release 15.63.1, this board %u.%u.%u", own >> 12,
             own >> 6 & 63, own & 63);
    cn_put_u16(bytes + 2, 0xffc1);
    cn_membership_receive(group->nodes[0].membership, 1, bytes, size, group->now_ms);
    refused(group, wanted);
    bytes[1]++; // a protocol that is not known, too
    cn_membership_receive(group->nodes[0].membership, 1, bytes, size, group->now_ms);
    cn_sim_group_run(group, 1000);
    assert_true(cn_sim_group_agree(group, 5)); // not waited for
    join(group, 100, 1);
    assert_true(cn_membership_has_reform_request(group->nodes[0].membership)); // it was updated
    cn_sim_group_close(group);
}

static void a_group_that_is_too_small_says_so_once(void **state)
{
    struct cn_sim_group *group = calloc(1, sizeof(*group));
    uint32_t present = 0;

    (void)state;
    assert_non_null(group);
    *group = (struct cn_sim_group){.seed = 5, .count = 3, .delay_ms = 5, .now_ms = 1000};
    group->min_members = 3;
    for (uint32_t i = 0; i < 2; i++)
        cn_sim_group_start(group, i);
    group->nodes[2].back_at_ms = 1000000;
    cn_sim_group_run(group, CN_SIM_FORM_MS - 100);
    assert_false(cn_membership_few(group->nodes[0].membership, group->now_ms, &present));
    cn_sim_group_run(group, 200);
    assert_true(cn_membership_few(group->nodes[0].membership, group->now_ms, &present));
    assert_int_equal(present, 2);
    assert_false(cn_membership_few(group->nodes[0].membership, group->now_ms, &present));
    cn_sim_group_start(group, 2);
    cn_sim_group_run(group, 1000);
    assert_true(cn_sim_group_agree(group, 7));
    cn_sim_group_close(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_boards_of_one_name_are_left_out_until_one_is_gone),
        cmocka_unit_test(a_restart_is_no_second_board),
        cmocka_unit_test(a_board_that_joins_has_no_old_view),
        cmocka_unit_test(what_came_while_this_board_stood_still_makes_no_second_board),
        cmocka_unit_test(another_release_is_left_out_by_name),
        cmocka_unit_test(a_group_that_is_too_small_says_so_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
