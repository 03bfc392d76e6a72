// A board notices that its gateway was restored from a backup.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/round/node/node_ahead.h"

static bool tells(const struct cn_progress *progress, const struct cn_round_info *news)
{
    struct cn_node_ahead ahead = {0};

    cn_node_ahead_hear(&ahead, progress, news, 1000);
    assert_false(cn_node_ahead_tell(&ahead, 1100));
    cn_node_ahead_hear(&ahead, progress, news, 3500);
    return cn_node_ahead_tell(&ahead, 3500) && !cn_node_ahead_tell(&ahead, 9000);
}

static void an_older_round_is_told_once_when_it_lasts(void **state)
{
    const struct cn_progress held = {.phase = CN_PHASE_BASE, .lineage = 2, .version = 10};
    const struct cn_progress nothing = {.phase = CN_PHASE_EMPTY};

    (void)state;
    assert_true(tells(&held, &(struct cn_round_info){.lineage = 2, .version = 9}));
    assert_true(tells(&held, &(struct cn_round_info){.lineage = 1, .version = 99}));
    assert_false(tells(&held, &(struct cn_round_info){.lineage = 2, .version = 10}));
    assert_false(tells(&held, &(struct cn_round_info){.lineage = 3, .version = 1}));
    assert_false(tells(&nothing, &(struct cn_round_info){.lineage = 1, .version = 9}));
}

static void a_message_that_was_overtaken_is_not_told(void **state)
{
    const struct cn_progress held = {.phase = CN_PHASE_TRAIN, .lineage = 1, .version = 10};
    struct cn_node_ahead ahead = {0};

    (void)state;
    cn_node_ahead_hear(&ahead, &held, &(struct cn_round_info){.lineage = 1, .version = 9}, 1000);
    cn_node_ahead_hear(&ahead, &held, &(struct cn_round_info){.lineage = 1, .version = 10}, 1500);
    assert_false(cn_node_ahead_tell(&ahead, 9000));
}

static bool is_false(const struct cn_progress *progress, const struct cn_round_info *news,
                     uint64_t lasting_ms)
{
    struct cn_node_ahead ahead = {0};

    cn_node_ahead_hear(&ahead, progress, news, 1000);
    if (lasting_ms)
        cn_node_ahead_hear(&ahead, progress, news, 1000 + lasting_ms);
    return ahead.false_round || ahead.other_model;
}

// A member of the group gave it: no aggregator had such a round, or such a version.
static void a_state_of_no_aggregator_is_false(void **state)
{
    const struct cn_progress held = {
        .phase = CN_PHASE_BASE, .run = 7, .lineage = 1, .round = 90, .version = 10};
    struct cn_round_info news = {.run = 7, .lineage = 1, .round = 12, .version = 10};

    (void)state;
    assert_false(is_false(&held, &news, 0));
    assert_false(is_false(&held, &news, 5000));
    assert_true(is_false(&held, &news, 15000));
    news.version = 11;
    assert_true(is_false(&held, &news, 15000));
    news.version = 9; // perhaps restored from a backup
    assert_false(is_false(&held, &news, 15000));
    news = (struct cn_round_info){.run = 7, .lineage = 1, .round = 90, .version = 10};
    assert_false(is_false(&held, &news, 15000));
    news.version_digest[3] = 1; // another model
    assert_true(is_false(&held, &news, 0));
    news.run = 8;
    assert_false(is_false(&held, &news, 15000));
}

// Another group went on from an older copy of the ledger: this board's model is one that was lost.
static void a_model_of_before_a_restore_is_not_false(void **state)
{
    const struct cn_progress held = {
        .phase = CN_PHASE_SEND, .run = 7, .lineage = 1, .round = 12, .version = 11};
    struct cn_round_info news = {.run = 7, .lineage = 1, .round = 4, .version = 3};
    struct cn_node_ahead ahead = {0};

    (void)state;
    cn_node_ahead_hear(&ahead, &held, &news, 1000);
    cn_node_ahead_hear(&ahead, &held, &news, 20000);
    assert_true(cn_node_ahead_tell(&ahead, 20000));
    news = (struct cn_round_info){
        .run = 7, .lineage = 1, .round = 12, .version = 11, .version_digest = {1}};
    cn_node_ahead_hear(&ahead, &held, &news, 30000);
    assert_false(ahead.false_round || ahead.other_model);
}

// The leader hears of each round first.
static void rounds_that_follow_one_another_are_not_false(void **state)
{
    struct cn_node_ahead ahead = {0};

    (void)state;
    for (uint32_t round = 2; round < 40; round++) {
        struct cn_progress held = {
            .phase = CN_PHASE_TRAIN, .lineage = 1, .round = round, .version = round - 1};
        struct cn_round_info news = {.lineage = 1, .round = round - 1, .version = round - 1};

        cn_node_ahead_hear(&ahead, &held, &news, 1000 * round);
        assert_false(ahead.false_round || ahead.other_model ||
                     cn_node_ahead_tell(&ahead, 1000 * round));
    }
}

static void a_board_asks_again_when_the_round_stays_behind(void **state)
{
    const struct cn_progress held = {.phase = CN_PHASE_BASE, .lineage = 1, .round = 90};
    struct cn_round_info news = {.lineage = 1, .round = 12};
    struct cn_node_ahead ahead = {0};

    (void)state;
    assert_false(cn_node_ahead_asks(&ahead, 90000));
    cn_node_ahead_hear(&ahead, &(struct cn_progress){0}, &news, 99000); // nothing is held yet
    assert_false(cn_node_ahead_asks(&ahead, 119000));
    cn_node_ahead_suspect(&ahead, &held, &news, 100000);
    assert_false(cn_node_ahead_asks(&ahead, 104000));
    assert_true(cn_node_ahead_asks(&ahead, 111000));
    assert_false(cn_node_ahead_asks(&ahead, 112000));
    assert_true(cn_node_ahead_asks(&ahead, 122000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_round_is_told_once_when_it_lasts),
        cmocka_unit_test(a_message_that_was_overtaken_is_not_told),
        cmocka_unit_test(a_state_of_no_aggregator_is_false),
        cmocka_unit_test(a_model_of_before_a_restore_is_not_false),
        cmocka_unit_test(rounds_that_follow_one_another_are_not_false),
        cmocka_unit_test(a_board_asks_again_when_the_round_stays_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
