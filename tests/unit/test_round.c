// What a group does next, for every state it can be in.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "runtime/round/round.h"

static struct cn_checkpoint holding(enum cn_phase phase, uint32_t round)
{
    struct cn_checkpoint held = {.run = 7, .lineage = 1, .phase = phase, .round = round};

    memset(held.base_digest, 'a', CN_DIGEST_SIZE);
    return held;
}

static struct cn_round_info news_of(enum cn_round_state state, uint32_t round)
{
    struct cn_round_info news = {
        .run = 7, .lineage = 1, .state = state, .round = round, .invited = true};

    memset(news.version_digest, 'a', CN_DIGEST_SIZE);
    return news;
}

static enum cn_round_action next(const struct cn_checkpoint *held, const struct cn_round_info *news)
{
    struct cn_round_plan plan;

    cn_round_next(held, news, &plan);
    return plan.action;
}

static void without_news_a_round_goes_on_and_nothing_new_begins(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_EMPTY, 0);

    (void)state;
    assert_int_equal(next(&held, NULL), CN_DO_WAIT);
    held.phase = CN_PHASE_BASE;
    assert_int_equal(next(&held, NULL), CN_DO_WAIT);
    held.phase = CN_PHASE_TRAIN;
    assert_int_equal(next(&held, NULL), CN_DO_STEP);
    held.phase = CN_PHASE_SEND;
    assert_int_equal(next(&held, NULL), CN_DO_SEND);
}

static void an_invited_group_begins_a_newer_round_from_the_named_version(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_BASE, 3);
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 4);

    (void)state;
    assert_int_equal(next(&held, &news), CN_DO_BEGIN);
    news.invited = false;
    assert_int_equal(next(&held, &news), CN_DO_WAIT);
    news.invited = true;
    news.state = CN_ROUND_CLOSING;
    assert_int_equal(next(&held, &news), CN_DO_WAIT);
    news.state = CN_ROUND_OPEN;
    news.version_digest[5] ^= 1;
    assert_int_equal(next(&held, &news), CN_DO_FETCH);
}

static void a_round_that_was_decided_is_not_trained_again(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_BASE, 4);
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 4);

    (void)state;
    assert_int_equal(next(&held, &news), CN_DO_WAIT);
}

static void a_group_without_a_model_fetches_one(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_EMPTY, 0);
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 1);

    (void)state;
    memset(held.base_digest, 0, CN_DIGEST_SIZE);
    assert_int_equal(next(&held, &news), CN_DO_FETCH);
    news.state = CN_ROUND_ENDED;
    assert_int_equal(next(&held, &news), CN_DO_FETCH);
}

static void training_stops_when_the_round_is_over(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_TRAIN, 4);
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 4);

    (void)state;
    assert_int_equal(next(&held, &news), CN_DO_STEP);
    news.state = CN_ROUND_CLOSING;
    assert_int_equal(next(&held, &news), CN_DO_STEP);
    news = news_of(CN_ROUND_OPEN, 5);
    assert_int_equal(next(&held, &news), CN_DO_ABANDON);
    news = news_of(CN_ROUND_ENDED, 4);
    assert_int_equal(next(&held, &news), CN_DO_ABANDON);
}

static void old_news_changes_nothing(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_TRAIN, 4);
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 3);

    (void)state;
    news.version_digest[0] ^= 1;
    assert_int_equal(next(&held, &news), CN_DO_STEP);
    held.phase = CN_PHASE_BASE;
    assert_int_equal(next(&held, &news), CN_DO_WAIT);
    held.lineage = 2;
    news = news_of(CN_ROUND_OPEN, 9);
    assert_int_equal(next(&held, &news), CN_DO_WAIT);
}

// A member that led before may have news from then.
static void an_older_version_is_not_taken_back(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_BASE, 4);
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 4);

    (void)state;
    held.version = 4;
    news.version = 3;
    memset(news.version_digest, 'b', CN_DIGEST_SIZE);
    assert_int_equal(next(&held, &news), CN_DO_WAIT);
    news.version = 5;
    assert_int_equal(next(&held, &news), CN_DO_FETCH);
}

static void another_run_or_a_higher_lineage_resets(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_SEND, 4);
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 1);

    (void)state;
    news.run = 8;
    assert_int_equal(next(&held, &news), CN_DO_RESET);
    news.run = 7;
    news.lineage = 2;
    assert_int_equal(next(&held, &news), CN_DO_RESET);
}

static void the_outbox_is_decided_by_what_the_aggregator_recorded(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_SEND, 4);
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 4);
    struct cn_round_plan plan;

    (void)state;
    news.decided_round = 3;
    assert_int_equal(next(&held, &news), CN_DO_SEND);
    news.decided_round = 4;
    news.decided_accepted = true;
    memset(news.decided_digest, 'd', CN_DIGEST_SIZE);
    cn_round_next(&held, &news, &plan);
    assert_int_equal(plan.action, CN_DO_DECIDE);
    assert_int_equal(plan.decision.verdict, CN_VERDICT_ACCEPTED);
    assert_int_equal(plan.decision.round, 4);
    assert_memory_equal(plan.decision.digest, news.decided_digest, CN_DIGEST_SIZE);
    news.decided_accepted = false;
    cn_round_next(&held, &news, &plan);
    assert_int_equal(plan.decision.verdict, CN_VERDICT_LATE);
    assert_int_equal(plan.decision.round, 0);

    news = news_of(CN_ROUND_OPEN, 5);
    cn_round_next(&held, &news, &plan);
    assert_int_equal(plan.action, CN_DO_DECIDE);
    assert_int_equal(plan.decision.verdict, CN_VERDICT_LATE);
    assert_int_equal(plan.decision.round, 0);
}

// What a board has trained in round 4, when the round is over and it hears of the group's newest
// update that was decided on.
static void what_another_part_of_the_group_delivered_is_not_sent_again(void **state)
{
    static const struct {
        uint32_t decided;
        bool accepted;
        uint8_t digest;
        enum cn_outcome outcome;
    } cases[] = {
        {3, true, 'd', CN_OUTCOME_NOTHING}, // of the round before: nobody has delivered
        {4, true, 'd', CN_OUTCOME_COUNTED}, // the own frame
        {4, true, 'e', CN_OUTCOME_OTHER},   // after a split of the LAN
        {4, false, 0, CN_OUTCOME_NOTHING},  // the round ended without one
        {6, true, 'e', CN_OUTCOME_OTHER},   // others have gone on for two rounds,
        {6, false, 0, CN_OUTCOME_OTHER},    // with what they share with this board
    };
    uint8_t own[CN_DIGEST_SIZE];

    (void)state;
    memset(own, 'd', sizeof(own));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (enum cn_phase phase = CN_PHASE_TRAIN; phase <= CN_PHASE_SEND; phase++) {
            struct cn_checkpoint held = holding(phase, 4);
            struct cn_round_info news = news_of(CN_ROUND_OPEN, 7);
            struct cn_round_plan plan;

            news.decided_round = cases[i].decided;
            news.decided_accepted = cases[i].accepted;
            memset(news.decided_digest, cases[i].digest, CN_DIGEST_SIZE);
            cn_round_next(&held, &news, &plan);
            assert_int_equal(plan.action, phase == CN_PHASE_SEND ? CN_DO_DECIDE : CN_DO_ABANDON);
            assert_int_equal(cn_round_outcome(&plan.decision, 4, own), cases[i].outcome);
        }
}

static void a_finished_run_ends_the_group_once_it_has_the_last_version(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_BASE, 4);
    struct cn_round_info news = news_of(CN_ROUND_ENDED, 4);

    (void)state;
    assert_int_equal(next(&held, &news), CN_DO_END);
    news.version_digest[0] ^= 1;
    assert_int_equal(next(&held, &news), CN_DO_FETCH);
}

// Version 9 is the newest; its delta has 100 bytes, those of 8 and 7 have 200 and 300.
static struct cn_round_info far_news(void)
{
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 10);

    news.version = 9;
    news.version_size = 4000;
    news.delta_size = 100;
    memset(news.version_digest, '9', CN_DIGEST_SIZE);
    memset(news.parent, '8', CN_DIGEST_SIZE);
    memset(news.delta_digest, 'd', CN_DIGEST_SIZE);
    news.chain.sizes[0] = 200;
    memset(news.chain.digests[0], 'e', CN_DIGEST_SIZE);
    news.chain.sizes[1] = 300;
    memset(news.chain.digests[1], 'f', CN_DIGEST_SIZE);
    return news;
}

static void a_board_that_missed_versions_takes_the_deltas_in_turn(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_BASE, 6);
    struct cn_round_info news = far_news();
    struct cn_round_fetch fetch;

    (void)state;
    held.version = 6;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_true(fetch.delta && !fetch.last);
    assert_int_equal(fetch.number, 7);
    assert_int_equal(fetch.size, 300);
    assert_int_equal(fetch.digest[0], 'f');
    held.version = 7;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_int_equal(fetch.number, 8);
    assert_int_equal(fetch.digest[0], 'e');
    held.version = 8;
    memset(held.base_digest, '8', CN_DIGEST_SIZE);
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_true(fetch.delta && fetch.last);
    assert_int_equal(fetch.digest[0], 'd');
}

static void the_full_version_is_taken_when_it_is_smaller_or_deltas_are_missing(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_BASE, 6);
    struct cn_round_info news = far_news();
    struct cn_round_fetch fetch;

    (void)state;
    held.version = 6;
    news.version_size = 600;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_true(!fetch.delta && fetch.last);
    assert_int_equal(fetch.digest[0], '9');
    news.version_size = 601;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_true(fetch.delta);
    cn_round_choose_fetch(&held, &news, true, &fetch); // a delta did not fit
    assert_false(fetch.delta);
    held.version = 5; // one more than the chain has
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_false(fetch.delta);
    held.phase = CN_PHASE_EMPTY;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_false(fetch.delta);
}

static void a_snapshot_is_taken_when_it_and_what_follows_are_fewer_bytes(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_BASE, 6);
    struct cn_round_info news = far_news();
    struct cn_round_fetch fetch;

    (void)state;
    news.snapshot = (struct cn_snapshot){.number = 8, .size = 450, .digest = {'s'}};
    held.version = 6; // 300 + 200 + 100 against 450 + 100
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_true(fetch.delta && !fetch.last);
    assert_int_equal(fetch.number, 8);
    assert_int_equal(fetch.size, 450);
    assert_int_equal(fetch.digest[0], 's');
    news.snapshot.size = 500;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_int_equal(fetch.digest[0], 'f');
    held.version = 2; // away for longer than the chain
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_int_equal(fetch.digest[0], 's');
    cn_round_choose_fetch(&held, &news, true, &fetch); // a frame did not fit
    assert_false(fetch.delta);
    held.phase = CN_PHASE_EMPTY;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_int_equal(fetch.digest[0], 's');
    news.snapshot.number = 9;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_true(fetch.delta && fetch.last);
    news.snapshot.size = 4000; // no fewer than the full version
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_false(fetch.delta);
    held.phase = CN_PHASE_BASE;
    held.version = 9; // not newer than what is held
    news.snapshot.size = 10;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_false(fetch.delta);
}

static void a_snapshot_without_its_deltas_is_not_taken(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_BASE, 2);
    struct cn_round_info news = far_news();
    struct cn_round_fetch fetch;

    (void)state;
    held.version = 2;
    news.snapshot = (struct cn_snapshot){.number = 5, .size = 10}; // that of 6 is missing
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_false(fetch.delta);
    news.snapshot.number = 6;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_true(fetch.delta);
}

static void a_snapshot_that_was_begun_leads_on_while_the_deltas_after_it_are_there(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_BASE, 2);
    struct cn_round_info news = far_news(); // it was handed out: the news leaves it out
    struct cn_round_fetch begun = {.number = 7, .delta = true, .size = 10}, fetch;

    (void)state;
    held.version = 2;
    cn_round_choose_fetch(&held, &news, false, &fetch);
    assert_false(fetch.delta);
    assert_true(cn_round_leads_on(&held, &news, &begun));
    news.chain.sizes[0] = 0; // the delta of 8 is missing
    assert_false(cn_round_leads_on(&held, &news, &begun));
    news = far_news();
    held.version = 7; // it has come
    assert_false(cn_round_leads_on(&held, &news, &begun));
    held.version = 2;
    begun.delta = false; // the full version is outdated
    assert_false(cn_round_leads_on(&held, &news, &begun));
    begun.delta = true;
    news.version_size = 300; // of which the deltas have as many
    assert_false(cn_round_leads_on(&held, &news, &begun));
}

// In an asynchronous run an update of an earlier round still counts.
static void an_asynchronous_round_goes_on_while_its_update_counts(void **state)
{
    struct cn_checkpoint held = holding(CN_PHASE_TRAIN, 4);
    struct cn_round_info news = news_of(CN_ROUND_OPEN, 6);

    (void)state;
    assert_int_equal(next(&held, &news), CN_DO_ABANDON);
    news.oldest = 4;
    assert_int_equal(next(&held, &news), CN_DO_STEP);
    held.phase = CN_PHASE_SEND;
    assert_int_equal(next(&held, &news), CN_DO_SEND);
    news.oldest = 5;
    assert_int_equal(next(&held, &news), CN_DO_DECIDE);
    held.phase = CN_PHASE_TRAIN;
    assert_int_equal(next(&held, &news), CN_DO_ABANDON);
    news.oldest = 4;
    news.decided_round = 5; // another part of the group has delivered a later round
    assert_int_equal(next(&held, &news), CN_DO_ABANDON);
    held.phase = CN_PHASE_BASE;
    assert_int_equal(next(&held, &news), CN_DO_BEGIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_asynchronous_round_goes_on_while_its_update_counts),
        cmocka_unit_test(without_news_a_round_goes_on_and_nothing_new_begins),
        cmocka_unit_test(an_invited_group_begins_a_newer_round_from_the_named_version),
        cmocka_unit_test(a_round_that_was_decided_is_not_trained_again),
        cmocka_unit_test(a_group_without_a_model_fetches_one),
        cmocka_unit_test(training_stops_when_the_round_is_over),
        cmocka_unit_test(old_news_changes_nothing),
        cmocka_unit_test(an_older_version_is_not_taken_back),
        cmocka_unit_test(another_run_or_a_higher_lineage_resets),
        cmocka_unit_test(the_outbox_is_decided_by_what_the_aggregator_recorded),
        cmocka_unit_test(what_another_part_of_the_group_delivered_is_not_sent_again),
        cmocka_unit_test(a_board_that_missed_versions_takes_the_deltas_in_turn),
        cmocka_unit_test(a_snapshot_is_taken_when_it_and_what_follows_are_fewer_bytes),
        cmocka_unit_test(a_snapshot_without_its_deltas_is_not_taken),
        cmocka_unit_test(a_snapshot_that_was_begun_leads_on_while_the_deltas_after_it_are_there),
        cmocka_unit_test(the_full_version_is_taken_when_it_is_smaller_or_deltas_are_missing),
        cmocka_unit_test(a_finished_run_ends_the_group_once_it_has_the_last_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
