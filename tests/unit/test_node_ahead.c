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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_round_is_told_once_when_it_lasts),
        cmocka_unit_test(a_message_that_was_overtaken_is_not_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
