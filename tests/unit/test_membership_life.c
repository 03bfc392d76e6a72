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

static struct cn_sim_group *create_watched(uint64_t seed, uint32_t count)
{
    struct cn_sim_group *group = cn_sim_group_open(seed, count);

    group->silent_rings = true;
    cn_sim_group_run(group, 1000);
    assert_true(cn_sim_group_agree(group, (1u << count) - 1));
    return group;
}

static void a_member_without_a_sign_of_life_is_lost_in_less_than_two_seconds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct cn_sim_group *group = create_watched(seed, 3);
        uint64_t begun_ms = group->now_ms;
        bool cut = seed % 2;

        if (cut)
            group->island = 4;
        else
            group->nodes[2].frozen = true;
        cn_sim_group_run(group, 1800);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(group->nodes[i].lost, 2);
            assert_in_range(group->nodes[i].lost_ms - begun_ms, 900, 1400);
        }
        if (cut)
            assert_true(group->nodes[2].lost < 2);
        cn_sim_group_close(group);
    }
}

static void a_member_that_works_slowly_but_answers_is_not_lost(void **state)
{
    struct cn_sim_group *group =
        create_watched(1, 3); // nobody gets on with its step in a silent ring

    (void)state;
    group->loss_percent = 10;
    group->delay_ms = 100;
    cn_sim_group_run(group, 120000);
    assert_true(cn_sim_group_agree(group, 7));
    assert_int_equal(group->view_count, 3);
    cn_sim_group_close(group);
}

// Member 1 says to member 0 that it misses another one.
static void accuse(struct cn_sim_group *group, uint32_t member)
{
    struct cn_membership_message suspect = {
        .type = CN_MEMBERSHIP_SUSPECT,
        .epoch = group->nodes[0].view.view.epoch,
        .members = 7,
        .accused = member,
    };
    uint8_t bytes[CN_PEER_MESSAGE_MAX];

    cn_membership_receive(group->nodes[0].membership, 1, bytes,
                          cn_membership_encode(&suspect, bytes), group->now_ms);
}

static void the_word_of_another_member_does_not_lose_one(void **state)
{
    struct cn_sim_group *group = create_watched(2, 3);

    (void)state;
    for (int i = 0; i < 100; i++) {
        accuse(group, 2);
        cn_sim_group_run(group, 50);
    }
    assert_int_equal(group->view_count, 3);
    cn_sim_group_close(group);
}

static void a_suspicion_makes_the_others_ask_at_once(void **state)
{
    struct cn_sim_group *group = create_watched(3, 3);

    (void)state;
    group->nodes[2].frozen = true;
    cn_sim_group_run(group, 600); // less than a second
    accuse(group, 2);
    cn_sim_group_run(group, 200);
    assert_int_equal(group->nodes[0].lost, 2);
    cn_sim_group_close(group);
}

static void a_board_that_stood_still_accuses_nobody(void **state)
{
    struct cn_sim_group *group = create_watched(4, 2);

    (void)state;
    group->nodes[0].frozen = group->nodes[1].frozen = true;
    cn_sim_group_run(group, 10000);
    group->nodes[0].frozen = group->nodes[1].frozen = false;
    cn_sim_group_run(group, 5000);
    assert_true(cn_sim_group_agree(group, 3));
    assert_int_equal(group->view_count, 2);
    cn_sim_group_close(group);
}

static void heartbeats_of_another_epoch_are_no_sign_of_life(void **state)
{
    struct cn_sim_group *group = create_watched(5, 2);
    struct cn_membership_message heartbeat = {
        .type = CN_MEMBERSHIP_HEARTBEAT,
        .epoch = group->nodes[0].view.view.epoch + 16,
        .members = 3,
    };
    uint8_t bytes[CN_PEER_MESSAGE_MAX];

    (void)state;
    group->nodes[1].frozen = true;
    for (int i = 0; i < 20; i++) {
        cn_sim_group_run(group, 100);
        cn_membership_receive(group->nodes[0].membership, 1, bytes,
                              cn_membership_encode(&heartbeat, bytes), group->now_ms);
    }
    assert_int_equal(group->nodes[0].lost, 1);
    cn_sim_group_close(group);
}

// The survivors blame each other, since each saw the other close first; the dead one was heard just
// before.
static void a_dead_member_that_nobody_blames_is_not_waited_for(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct cn_sim_group *group = create_watched(seed, 3);
        uint32_t dead = (uint32_t)seed % 3;
        uint64_t begun_ms;

        group->rejoin_ms = 50;
        for (uint32_t i = 0; i < 3; i++)
            cn_sim_group_crash(group, i, 10);
        cn_sim_group_run(group, 1500 + 10 * (seed % 25));
        assert_true(cn_sim_group_agree(group, 7));
        begun_ms = group->now_ms;
        cn_sim_group_crash(group, dead, 100000);
        cn_sim_group_leave(group, (dead + 1) % 3, (dead + 2) % 3);
        cn_sim_group_leave(group, (dead + 2) % 3, (dead + 1) % 3);
        while (!cn_sim_group_agree(group, 7 & ~(1u << dead)))
            cn_sim_group_run(group, CN_SIM_TICK_MS);
        assert_in_range(group->now_ms - begun_ms, 50, 300);
        cn_sim_group_close(group);
    }
}

// All blame the dead one; a busy survivor answers only after a while.
static void a_late_survivor_is_waited_for_when_another_is_to_blame(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct cn_sim_group *group = create_watched(seed, 3);
        uint32_t dead = (uint32_t)seed % 3, first = (dead + 1) % 3, late = (dead + 2) % 3;
        size_t views;

        group->rejoin_ms = 50;
        for (uint32_t i = 0; i < 3; i++)
            cn_sim_group_crash(group, i, 10);
        cn_sim_group_run(group, 2500);
        assert_true(cn_sim_group_agree(group, 7));
        views = group->view_count;
        cn_sim_group_crash(group, dead, 100000);
        cn_sim_group_leave(group, first, dead);
        group->nodes[late].frozen = true;
        cn_sim_group_run(group, 250 + 10 * (seed % 25));
        group->nodes[late].frozen = false;
        cn_sim_group_leave(group, late, dead);
        cn_sim_group_run(group, 2000);
        assert_true(cn_sim_group_agree(group, 7 & ~(1u << dead)));
        for (size_t i = views; i < group->view_count; i++)
            assert_int_equal(group->views[i].size, 2);
        cn_sim_group_close(group);
    }
}

static void a_member_that_said_bye_is_not_waited_for(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(13, 3);
    uint8_t bytes[CN_PEER_MESSAGE_MAX];
    size_t size;

    (void)state;
    cn_sim_group_run(group, 1000);
    size = cn_membership_bye(group->nodes[2].membership, bytes);
    for (uint32_t i = 0; i < 2; i++)
        cn_membership_receive(group->nodes[i].membership, 2, bytes, size, group->now_ms);
    cn_sim_group_crash(group, 2, 2000);
    cn_sim_group_run(group, CN_SIM_REJOIN_MS / 2);
    assert_true(cn_sim_group_agree(group, 3));
    cn_sim_group_run(group, 4000);
    assert_true(cn_sim_group_agree(group, 7)); // it is back, and counts again
    cn_sim_group_close(group);
}

static void the_smaller_part_of_a_split_group_waits_below_min_members(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(14, 5);

    (void)state;
    for (uint32_t i = 0; i < 5; i++)
        cn_sim_group_crash(group, i, 0);
    group->min_members = 3;
    cn_sim_group_run(group, 1000);
    assert_true(cn_sim_group_agree(group, 31));
    group->island = 3;
    cn_sim_group_run(group, 20000);
    assert_true(cn_sim_group_agree(group, 28));
    assert_false(group->nodes[0].in_view || group->nodes[1].in_view);
    group->island = 0;
    cn_sim_group_run(group, 5000);
    assert_true(cn_sim_group_agree(group, 31));
    cn_sim_group_close(group);
}

static void a_board_whose_disk_is_full_does_not_lead_but_takes_part(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(15, 3);

    (void)state;
    group->nodes[0].disk_full = true;
    cn_sim_group_run(group, 3000);
    assert_true(cn_sim_group_agree(group, 7));
    assert_int_equal(group->nodes[0].view.view.epoch % CN_GROUP_MAX, 1);
    cn_sim_group_close(group);
}

static void a_board_whose_disk_is_full_trains_alone_when_nobody_else_is_there(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(16, 2);

    (void)state;
    group->nodes[0].disk_full = true;
    cn_sim_group_crash(group, 1, 1000000);
    cn_sim_group_run(group, CN_SIM_FORM_MS + 1000);
    assert_true(cn_sim_group_agree(group, 1));
    cn_sim_group_close(group);
}

// The leader dies with its PREPAREs sent, then its successor does.
static void leader_and_successor_may_die_while_they_prepare(void **state)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct cn_sim_group *group = cn_sim_group_open(seed, 4);

        (void)state;
        group->delay_ms = 40; // so that answers are on their way
        cn_sim_group_run(group, 1500);
        assert_true(cn_sim_group_agree(group, 15));
        cn_sim_group_crash(group, 3, 1000000);
        cn_sim_group_run(group, CN_SIM_REJOIN_MS + 10 + 10 * (seed % 8));
        cn_sim_group_crash(group, 0, 1000000);
        cn_sim_group_run(group, CN_SIM_FRESH_MS + 10 * (seed % 25));
        cn_sim_group_crash(group, 1, 1000000);
        cn_sim_group_run(group, 5000);
        assert_true(cn_sim_group_agree(group, 4));
        assert_false(group->broken);
        cn_sim_group_close(group);
    }
}

static void who_does_not_answer_a_prepare_is_waited_for_like_who_is_not_there(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(17, 3);

    (void)state;
    cn_sim_group_run(group, 20); // all have said JOIN
    group->nodes[2].frozen = true;
    cn_sim_group_run(group, CN_SIM_FORM_MS - 200);
    assert_int_equal(group->view_count, 0);
    cn_sim_group_run(group, 1000);
    assert_true(cn_sim_group_agree(group, 3));
    cn_sim_group_close(group);
}

// It announces itself all the time and never answers: the others get on, and write few numbers.
static void a_member_that_never_answers_neither_stops_the_others_nor_wears_their_disk(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(18, 3);
    uint64_t numbers;
    size_t views;

    (void)state;
    group->nodes[2].deaf = true;
    cn_sim_group_run(group, CN_SIM_FORM_MS + 1000);
    assert_true(cn_sim_group_agree(group, 3));
    views = group->view_count;
    numbers = group->nodes[0].persisted_epoch / CN_GROUP_MAX;
    assert_true(numbers <= 8);
    cn_sim_group_run(group, 120000);
    // Once in 16 s at the end: about 12 times in two minutes, two views each time.
    assert_true(group->nodes[0].persisted_epoch / CN_GROUP_MAX - numbers <= 24);
    assert_true(group->view_count - views <= 2 * 24);
    group->nodes[2].deaf = false;
    cn_sim_group_run(group, 18000);
    assert_true(cn_sim_group_agree(group, 7));
    cn_sim_group_close(group);
}

// Its JOIN was heard and it is there again soon: nobody goes on without it.
static void a_member_may_restart_while_it_is_asked_to_be_ready(void **state)
{
    for (uint32_t wait_ms = 0; wait_ms < 300; wait_ms += CN_SIM_TICK_MS) {
        struct cn_sim_group *group = cn_sim_group_open(50 + wait_ms, 3);

        (void)state;
        cn_sim_group_run(group, 1000);
        assert_true(cn_sim_group_agree(group, 7));
        cn_sim_group_crash(group, 1, 100);
        cn_sim_group_run(group, 100 + wait_ms);
        cn_sim_group_crash(group, 1, 100);
        cn_sim_group_run(group, CN_SIM_REJOIN_MS + 2000);
        assert_true(cn_sim_group_agree(group, 7));
        for (size_t i = 0; i < group->view_count; i++)
            assert_int_equal(group->views[i].size, 3);
        cn_sim_group_close(group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_without_a_sign_of_life_is_lost_in_less_than_two_seconds),
        cmocka_unit_test(a_member_that_works_slowly_but_answers_is_not_lost),
        cmocka_unit_test(the_word_of_another_member_does_not_lose_one),
        cmocka_unit_test(a_suspicion_makes_the_others_ask_at_once),
        cmocka_unit_test(a_board_that_stood_still_accuses_nobody),
        cmocka_unit_test(heartbeats_of_another_epoch_are_no_sign_of_life),
        cmocka_unit_test(a_dead_member_that_nobody_blames_is_not_waited_for),
        cmocka_unit_test(a_late_survivor_is_waited_for_when_another_is_to_blame),
        cmocka_unit_test(a_member_that_said_bye_is_not_waited_for),
        cmocka_unit_test(the_smaller_part_of_a_split_group_waits_below_min_members),
        cmocka_unit_test(a_board_whose_disk_is_full_does_not_lead_but_takes_part),
        cmocka_unit_test(a_board_whose_disk_is_full_trains_alone_when_nobody_else_is_there),
        cmocka_unit_test(leader_and_successor_may_die_while_they_prepare),
        cmocka_unit_test(who_does_not_answer_a_prepare_is_waited_for_like_who_is_not_there),
        cmocka_unit_test(a_member_that_never_answers_neither_stops_the_others_nor_wears_their_disk),
        cmocka_unit_test(a_member_may_restart_while_it_is_asked_to_be_ready),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
