// When a board asks for new pair keys, and when it begins to use them.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "runtime/round/node/node_keys.h"

#define NOW 100000

// Keys of an epoch for the members 1 and 2; the board itself is member 0.
static struct cn_manifest manifest_of(uint64_t key_epoch, uint32_t members)
{
    struct cn_manifest manifest = {.key_epoch = key_epoch, .group_boards = 3};

    for (uint32_t i = 1; i < CN_GROUP_MAX; i++)
        if (members >> i & 1)
            memset(manifest.pair_keys[i], (int)(key_epoch + 1), CN_KEY_SIZE);
    return manifest;
}

static struct cn_node_keys waiting(void)
{
    struct cn_manifest manifest = manifest_of(1, 6);
    struct cn_node_keys keys = {0};

    cn_node_keys_keep(&keys, &manifest, 10, NOW);
    return keys;
}

static void keys_are_used_from_the_end_of_the_round_on(void **state)
{
    struct cn_node_keys keys = waiting();
    struct cn_progress progress = {.phase = CN_PHASE_TRAIN, .round = 10};

    (void)state;
    assert_false(cn_node_keys_due(&keys, &progress, false, 0, NOW));
    progress.phase = CN_PHASE_SEND;
    assert_true(cn_node_keys_due(&keys, &progress, false, 0, NOW));
    progress = (struct cn_progress){.phase = CN_PHASE_TRAIN, .round = 11};
    assert_true(cn_node_keys_due(&keys, &progress, false, 0, NOW));
    cn_node_keys_drop(&keys);
    assert_false(cn_node_keys_due(&keys, &progress, false, 0, NOW));
}

static void a_member_without_them_is_waited_for_through_three_rounds(void **state)
{
    struct cn_node_keys keys = waiting();
    struct cn_progress progress = {.phase = CN_PHASE_TRAIN};

    (void)state;
    for (progress.round = 10; progress.round < 13; progress.round++)
        assert_false(cn_node_keys_due(&keys, &progress, false, 2, NOW));
    assert_true(cn_node_keys_due(&keys, &progress, false, 2, NOW));
}

// Whoever leads may keep the rounds from ending.
static void rounds_that_do_not_end_hold_nothing_up(void **state)
{
    struct cn_node_keys keys = waiting();
    struct cn_progress progress = {.phase = CN_PHASE_TRAIN, .round = 10};

    (void)state;
    assert_false(cn_node_keys_due(&keys, &progress, false, 2, NOW + CN_KEY_WAIT_MS - 1));
    assert_true(cn_node_keys_due(&keys, &progress, false, 2, NOW + CN_KEY_WAIT_MS));
}

// Its group cannot form without the member that has gone over: nothing would ever end the round.
static void while_the_group_forms_keys_are_used_at_once(void **state)
{
    struct cn_node_keys keys = waiting();
    const struct cn_progress progress = {.phase = CN_PHASE_TRAIN, .round = 10};

    (void)state;
    assert_false(cn_node_keys_due(&keys, &progress, false, 0, NOW));
    assert_true(cn_node_keys_due(&keys, &progress, true, 0, NOW));
    assert_false(cn_node_keys_due(&keys, &progress, true, 2, NOW)); // heard, and without them
}

static void a_member_that_gets_no_key_is_not_waited_for(void **state)
{
    struct cn_node_keys keys = waiting();
    const struct cn_progress progress = {.phase = CN_PHASE_BASE, .round = 10};

    (void)state;
    assert_false(cn_node_keys_due(&keys, &progress, false, 4, NOW));
    assert_true(cn_node_keys_due(&keys, &progress, false, 8, NOW));
}

static void a_second_raise_does_not_prolong_the_wait(void **state)
{
    struct cn_node_keys keys = waiting();
    struct cn_manifest second = manifest_of(2, 6);
    const struct cn_progress progress = {.phase = CN_PHASE_TRAIN, .round = 13};

    (void)state;
    cn_node_keys_keep(&keys, &second, 12, NOW + 1000);
    assert_true(cn_node_keys_due(&keys, &progress, false, 2, NOW + 1000));
    assert_int_equal(keys.manifest.key_epoch, 2);
}

static void newer_keys_and_other_members_are_asked_for(void **state)
{
    const struct cn_manifest used = manifest_of(4, 6);
    struct cn_round_info news = {.key_epoch = 4, .group_boards = 3};
    struct cn_node_keys keys = {0};

    (void)state;
    assert_false(cn_node_keys_ask(&keys, &used, &news, NOW));
    news.key_epoch = 3; // of an older copy of the ledger
    assert_false(cn_node_keys_ask(&keys, &used, &news, NOW));
    news = (struct cn_round_info){.key_epoch = 0}; // of an aggregator of the release before
    assert_false(cn_node_keys_ask(&keys, &used, &news, NOW));
    news = (struct cn_round_info){.key_epoch = 5, .group_boards = 3};
    assert_true(cn_node_keys_ask(&keys, &used, &news, NOW));
    assert_false(cn_node_keys_ask(&keys, &used, &news, NOW + 100)); // it is under way
    assert_true(cn_node_keys_ask(&keys, &used, &news, NOW + 10000));
    news = (struct cn_round_info){.key_epoch = 4, .group_boards = 4};
    assert_true(cn_node_keys_ask(&keys, &used, &news, NOW + 20000));
}

static void a_board_that_does_not_lead_looks_at_the_end_of_rounds(void **state)
{
    const struct cn_manifest used = manifest_of(0, 6);
    struct cn_node_keys keys = {.looked_ms = NOW, .looked_round = 5};

    (void)state;
    assert_false(cn_node_keys_look(&keys, &used, 5, 0, NOW + 20000));
    assert_true(cn_node_keys_look(&keys, &used, 6, 0, NOW + 20000));
    assert_false(cn_node_keys_look(&keys, &used, 7, 0, NOW + 20500));
    assert_true(cn_node_keys_look(&keys, &used, 7, 1, NOW + 21000)); // a member has heard of some
    assert_false(cn_node_keys_look(&keys, &used, 7, 0, NOW + 22000));
    assert_true(cn_node_keys_look(&keys, &used, 7, 0, NOW + 60000));
}

// It would have all others ask each second.
static void a_claim_that_nothing_bears_out_silences_claims(void **state)
{
    struct cn_manifest used = manifest_of(0, 6);
    struct cn_node_keys keys = {.looked_ms = NOW, .looked_round = 5};
    uint32_t looks = 0;

    (void)state;
    for (uint64_t at = 0; at < 30000; at += 500)
        looks += cn_node_keys_look(&keys, &used, 5, UINT64_MAX - at, NOW + at);
    assert_int_equal(looks, 1);
    assert_true(cn_node_keys_look(&keys, &used, 5, UINT64_MAX, NOW + 31000));
    assert_false(cn_node_keys_look(&keys, &used, 6, UINT64_MAX, NOW + 35000));
    assert_true(cn_node_keys_look(&keys, &used, 6, UINT64_MAX, NOW + 36000)); // a round's end
}

static void a_claim_that_is_borne_out_leaves_the_next_one_its_weight(void **state)
{
    struct cn_manifest used = manifest_of(0, 6);
    struct cn_node_keys keys = {.looked_ms = NOW, .looked_round = 5};

    (void)state;
    assert_true(cn_node_keys_look(&keys, &used, 5, 1, NOW + 1000));
    used = manifest_of(1, 6);
    assert_false(cn_node_keys_look(&keys, &used, 5, 2, NOW + 1500));
    assert_true(cn_node_keys_look(&keys, &used, 5, 2, NOW + 2000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_used_from_the_end_of_the_round_on),
        cmocka_unit_test(a_member_without_them_is_waited_for_through_three_rounds),
        cmocka_unit_test(rounds_that_do_not_end_hold_nothing_up),
        cmocka_unit_test(while_the_group_forms_keys_are_used_at_once),
        cmocka_unit_test(a_member_that_gets_no_key_is_not_waited_for),
        cmocka_unit_test(a_second_raise_does_not_prolong_the_wait),
        cmocka_unit_test(newer_keys_and_other_members_are_asked_for),
        cmocka_unit_test(a_board_that_does_not_lead_looks_at_the_end_of_rounds),
        cmocka_unit_test(a_claim_that_nothing_bears_out_silences_claims),
        cmocka_unit_test(a_claim_that_is_borne_out_leaves_the_next_one_its_weight),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
