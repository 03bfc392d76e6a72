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

static void the_first_view_has_all_members(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= CN_SIM_NODES; count++) {
        struct cn_sim_group *group = cn_sim_group_open(count, count);

        cn_sim_group_run(group, 400);
        assert_true(cn_sim_group_agree(group, (1u << count) - 1));
        assert_int_equal(group->nodes[0].view.view.epoch % CN_GROUP_MAX, 0); // the lowest leads
        assert_int_equal(group->view_count, count);
        assert_false(group->broken);
        cn_sim_group_close(group);
    }
}

static void members_that_stay_away_at_the_start_are_left_out_after_form_ms(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(1, 3);

    (void)state;
    cn_sim_group_crash(group, 2, 1000000);
    cn_sim_group_run(group, CN_SIM_FORM_MS - 200);
    assert_int_equal(group->view_count, 0);
    cn_sim_group_run(group, 500);
    assert_true(cn_sim_group_agree(group, 3));
    cn_sim_group_close(group);
}

static void a_lost_member_that_returns_in_time_is_in_the_next_view(void **state)
{
    for (uint32_t victim = 0; victim < 3; victim++) {
        struct cn_sim_group *group = cn_sim_group_open(2 + victim, 3);

        (void)state;
        cn_sim_group_run(group, 1000);
        assert_true(cn_sim_group_agree(group, 7));
        cn_sim_group_crash(group, victim, CN_SIM_REJOIN_MS / 2);
        cn_sim_group_run(group, CN_SIM_REJOIN_MS + 1500);
        assert_true(cn_sim_group_agree(group, 7));
        assert_int_equal(group->view_count, 6); // one view before and one after, nothing between
        cn_sim_group_close(group);
    }
}

static void a_lost_member_that_stays_away_is_left_out_and_taken_in_later(void **state)
{
    for (uint32_t victim = 0; victim < 3; victim++) {
        struct cn_sim_group *group = cn_sim_group_open(20 + victim, 3);

        (void)state;
        cn_sim_group_run(group, 1000);
        cn_sim_group_crash(group, victim, 10000);
        cn_sim_group_run(group, CN_SIM_REJOIN_MS - 200);
        assert_int_equal(group->view_count, 3);
        cn_sim_group_run(group, 2000);
        assert_true(cn_sim_group_agree(group, 7u & ~(1u << victim)));
        cn_sim_group_run(group, 10000);
        assert_true(cn_sim_group_agree(group, 7));
        cn_sim_group_close(group);
    }
}

static void a_newcomer_waits_while_the_others_are_busy(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(4, 3);
    uint32_t to;
    uint8_t bytes[CN_PEER_MESSAGE_MAX];
    size_t size;
    struct cn_membership_view view;

    (void)state;
    cn_sim_group_crash(group, 0, 100);
    cn_sim_group_run(group, 50); // 1 and 2 may not form before 0 is heard or form_ms is over
    group->nodes[0].back_at_ms = UINT64_MAX;
    cn_sim_group_run(group, CN_SIM_FORM_MS + 500);
    assert_true(cn_sim_group_agree(group, 6));
    cn_sim_group_start(group, 0);
    // 1 answers BUSY for as long as its step takes, here much longer than form_ms.
    for (uint64_t ms = 0; ms < 4 * CN_SIM_FORM_MS; ms += 50) {
        group->now_ms += 50;
        while (cn_membership_next(group->nodes[0].membership, group->now_ms, &to, bytes, &size))
            if (to == 1)
                cn_membership_receive(group->nodes[1].membership, 0, bytes, size, group->now_ms);
        assert_false(cn_membership_view(group->nodes[0].membership, &view));
        while (cn_membership_next(group->nodes[1].membership, group->now_ms, &to, bytes, &size))
            if (to == 0)
                cn_membership_receive(group->nodes[0].membership, 1, bytes, size, group->now_ms);
    }
    assert_true(cn_membership_has_reform_request(group->nodes[1].membership));
    cn_sim_group_close(group);
}

static void a_split_network_heals_to_one_view(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(5, 4);

    (void)state;
    cn_sim_group_run(group, 1000);
    group->island = 3;
    cn_sim_group_run(group, 5000);
    assert_true(cn_sim_group_agree(group, 3));
    assert_true(cn_sim_group_agree(group, 12));
    group->island = 0;
    cn_sim_group_run(group, 5000);
    assert_true(cn_sim_group_agree(group, 15));
    assert_false(group->broken);
    cn_sim_group_close(group);
}

static void the_member_with_the_newest_state_is_the_source(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(6, 3);

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        cn_sim_group_crash(group, i, 0);
    group->nodes[0].tag = (struct cn_state_tag){.run = 1, .round = 3, .step = 90};
    group->nodes[1].tag = (struct cn_state_tag){.run = 1, .round = 4, .step = 2};
    group->nodes[2].tag = group->nodes[1].tag;
    cn_sim_group_run(group, 500);
    assert_true(cn_sim_group_agree(group, 7));
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(group->nodes[i].view.source, 1); // the lowest of the equal ones
    cn_sim_group_close(group);
}

static void a_member_with_another_job_is_refused_and_not_waited_for(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(7, 3);
    uint32_t member = UINT32_MAX;
    struct cn_member names[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    char text[200];

    (void)state;
    cn_sim_group_crash(group, 1, 0);
    group->nodes[1].job[0] = 1;
    cn_sim_group_run(group, CN_SIM_FORM_MS - 200);
    assert_false(cn_membership_refused(group->nodes[0].membership, group->now_ms, &member));
    cn_sim_group_run(group, 500);
    assert_true(cn_sim_group_agree(group, 5));
    assert_true(cn_membership_refused(group->nodes[0].membership, group->now_ms, &member));
    assert_int_equal(member, 1);
    assert_false(
        cn_membership_refused(group->nodes[0].membership, group->now_ms, &member)); // told once
    cn_membership_describe(group->nodes[0].membership, names, group->now_ms, text, sizeof(text));
    assert_string_equal(
        text, "epoch 16: a (leads), c; b works on another job or run, or names other members");
    cn_sim_group_run(group, 3000);
    assert_false(cn_membership_has_reform_request(group->nodes[0].membership));
    cn_sim_group_close(group);
}

static void members_that_hear_of_a_job_one_after_the_other_stay_together(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(8, 3);
    uint32_t member;

    (void)state;
    cn_sim_group_run(group, 1000);
    for (uint32_t i = 0; i < 3; i++) {
        if (i > 0)
            assert_true(cn_membership_doubts_job(group->nodes[i].membership));
        assert_false(cn_membership_doubts_job(group->nodes[i].membership)); // told once
        group->nodes[i].job[0] = 1;
        cn_sim_group_crash(group, i, 0);
        cn_sim_group_run(group, 400);
    }
    cn_sim_group_run(group, 1000);
    assert_true(cn_sim_group_agree(group, 7));
    assert_int_equal(group->view_count, 6); // one view before and one after, nothing between
    cn_sim_group_run(group, 3000);
    assert_false(cn_membership_refused(group->nodes[0].membership, group->now_ms, &member));
    cn_sim_group_close(group);
}

static void a_member_that_cannot_be_reached_is_left_out_for_a_while(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(11, 2);
    struct cn_membership *first = group->nodes[0].membership;

    (void)state;
    cn_sim_group_run(group, 1000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cn_membership_unreachable(first, 1, group->now_ms), 0);
        cn_sim_group_leave(group, 0, 1);
        cn_sim_group_run(group, 600);
        assert_true(cn_sim_group_agree(group, 3)); // it may have been an accident
    }
    assert_int_equal(cn_membership_unreachable(first, 1, group->now_ms), 10000);
    cn_sim_group_leave(group, 0, 1);
    cn_sim_group_run(group, 3000);
    assert_true(cn_sim_group_agree(group, 1));
    assert_false(cn_membership_has_reform_request(first));
    cn_sim_group_run(group, 10000);
    assert_true(cn_sim_group_agree(group, 3));
    cn_sim_group_close(group);
}

static void nobody_is_waited_for_in_a_hurry(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(12, 2);

    (void)state;
    cn_sim_group_crash(group, 1, 1000000);
    cn_sim_group_run(group, 500);
    assert_false(cn_sim_group_agree(group, 1));
    cn_membership_hurry(group->nodes[0].membership);
    cn_sim_group_run(group, 100);
    assert_true(cn_sim_group_agree(group, 1));
    cn_sim_group_close(group);
}

static void describe_names_the_missing_and_fits_any_size(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(8, 2);
    struct cn_member names[2] = {{.name = "board-1"}, {.name = "board-2"}};
    char text[200];

    (void)state;
    cn_sim_group_run(group, 1000);
    cn_sim_group_crash(group, 1, 1000000);
    cn_sim_group_run(group, 14000);
    cn_membership_describe(group->nodes[0].membership, names, group->now_ms, text, sizeof(text));
    assert_string_equal(text, "epoch 32: board-1 (leads); board-2 is missing since 14 s");
    for (size_t size = 1; size < 80; size++)
        cn_membership_describe(group->nodes[0].membership, names, group->now_ms, text, size);
    cn_sim_group_close(group);
}

static void a_repeated_or_forged_commit_is_ignored(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(9, 2);
    struct cn_membership_message commit = {
        .type = CN_MEMBERSHIP_COMMIT, .epoch = 160, .members = 3};
    struct cn_membership_view view;
    uint8_t bytes[CN_PEER_MESSAGE_MAX];

    (void)state;
    // Another stay of this board, then another leader than the sender, then a view without the
    // board.
    cn_membership_receive(group->nodes[1].membership, 0, bytes,
                          cn_membership_encode(&commit, bytes), group->now_ms);
    commit.epoch = 161;
    cn_membership_receive(group->nodes[1].membership, 0, bytes,
                          cn_membership_encode(&commit, bytes), group->now_ms);
    commit.epoch = 160;
    commit.members = 1;
    cn_membership_receive(group->nodes[1].membership, 0, bytes,
                          cn_membership_encode(&commit, bytes), group->now_ms);
    assert_false(cn_membership_view(group->nodes[1].membership, &view));
    cn_sim_group_close(group);
}

static void messages_of_any_size_and_content_are_safe(void **state)
{
    struct cn_sim_group *group = cn_sim_group_open(10, 3);

    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        uint8_t bytes[CN_PEER_MESSAGE_MAX];
        size_t size = cn_sim_group_draw(group, 300);

        for (size_t k = 0; k < size; k++)
            bytes[k] = (uint8_t)(k == 1 ? CN_MEMBERSHIP_PROTOCOL
                                        : cn_sim_group_draw(group, k < 16 && k > 3 ? 2 : 4));
        if (size >= 4)
            cn_put_u16(bytes + 2, cn_membership_release());
        cn_membership_receive(group->nodes[0].membership, cn_sim_group_draw(group, 4), bytes, size,
                              group->now_ms);
    }
    cn_sim_group_close(group);
}

static void messages_survive_encoding(void **state)
{
    struct cn_membership_message message = {.type = CN_MEMBERSHIP_COMMIT,
                                            .release = cn_membership_release(),
                                            .epoch = 1234567890123ull,
                                            .members = 0x2d,
                                            .source = 3,
                                            .stays = {{1, 2}, {3, 4}, {5, 6}, {UINT64_MAX, 8}}};
    struct cn_membership_message back;
    uint8_t bytes[CN_PEER_MESSAGE_MAX];
    size_t size = cn_membership_encode(&message, bytes);

    (void)state;
    assert_int_equal(cn_membership_decode(bytes, size, 6, &back), CN_OK);
    assert_memory_equal(&back, &message, sizeof(back));
    assert_int_equal(cn_membership_decode(bytes, size, 5, &back), CN_EFORMAT); // index 5
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(cn_membership_decode(bytes, cut, 6, &back), CN_EFORMAT);

    memset(&message, 0, sizeof(message)); // field by field: padding is compared, too
    message.type = CN_MEMBERSHIP_JOIN;
    message.release = cn_membership_release();
    message.stay.boot_id = 5;
    message.stay.number = 6;
    message.tag.run = 1ull << 60;
    message.tag.round = 3;
    message.tag.samples = 1ull << 40;
    message.tag.counted_round = 2;
    message.tag.counted_own = true;
    memcpy(message.tag.counted, "counted.", CN_TAG_DIGEST_SIZE);
    memcpy(message.tag.frame, "a frame.", CN_TAG_DIGEST_SIZE);
    size = cn_membership_encode(&message, bytes);
    assert_int_equal(cn_membership_decode(bytes, size, 6, &back), CN_OK);
    assert_memory_equal(&back, &message, sizeof(back));
}
// Loss, delay, repetition, crashes and a split for some time, then a quiet network.
static void run_storm(uint64_t seed)
{
    struct cn_sim_group *group = cn_sim_group_open(seed, 2 + (uint32_t)(seed % (CN_SIM_NODES - 1)));
    uint32_t all = (1u << group->count) - 1;

    group->loss_percent = cn_sim_group_draw(group, 40);
    group->copy_percent = cn_sim_group_draw(group, 20);
    group->delay_ms = 1 + cn_sim_group_draw(group, 400);
    group->crash_permille = cn_sim_group_draw(group, 300);
    cn_sim_group_run(group, 5000);
    group->island = cn_sim_group_draw(group, all + 1);
    cn_sim_group_run(group, 4000);
    group->island = 0;
    cn_sim_group_run(group, 4000);
    group->loss_percent = group->copy_percent = group->crash_permille = 0;
    group->delay_ms = 5;
    // A member that could not be reached again and again in the storm is left out for a while.
    for (int i = 0; i < 20 && (i == 0 || !cn_sim_group_agree(group, all)); i++)
        cn_sim_group_run(group, 12000);
    if (!cn_sim_group_agree(group, all))
        cn_sim_group_complain(group, "no common view", 0);
    if (group->broken)
        fail_msg("%s", group->text);
    cn_sim_group_close(group);
}

static void any_storm_ends_in_one_view_and_never_has_two_of_an_epoch(void **state)
{
    const char *seeds = getenv("CAIRN_TEST_SEEDS");
    uint64_t count = seeds ? strtoull(seeds, NULL, 10) : 150;

    (void)state;
    for (uint64_t seed = 1; seed <= count; seed++)
        run_storm(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_view_has_all_members),
        cmocka_unit_test(members_that_stay_away_at_the_start_are_left_out_after_form_ms),
        cmocka_unit_test(a_lost_member_that_returns_in_time_is_in_the_next_view),
        cmocka_unit_test(a_lost_member_that_stays_away_is_left_out_and_taken_in_later),
        cmocka_unit_test(a_newcomer_waits_while_the_others_are_busy),
        cmocka_unit_test(a_split_network_heals_to_one_view),
        cmocka_unit_test(the_member_with_the_newest_state_is_the_source),
        cmocka_unit_test(a_member_with_another_job_is_refused_and_not_waited_for),
        cmocka_unit_test(members_that_hear_of_a_job_one_after_the_other_stay_together),
        cmocka_unit_test(a_member_that_cannot_be_reached_is_left_out_for_a_while),
        cmocka_unit_test(nobody_is_waited_for_in_a_hurry),
        cmocka_unit_test(describe_names_the_missing_and_fits_any_size),
        cmocka_unit_test(a_repeated_or_forged_commit_is_ignored),
        cmocka_unit_test(messages_of_any_size_and_content_are_safe),
        cmocka_unit_test(messages_survive_encoding),
        cmocka_unit_test(any_storm_ends_in_one_view_and_never_has_two_of_an_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
