// A board that trains and hears of new pair keys, with a link that only counts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <stdlib.h>

#include "runtime/round/node/node_private.h"

#define NOW 100000

static unsigned registrations;

static cn_err enlist(struct cn_link *link, const struct cn_registration *registration)
{
    (void)link, (void)registration;
    registrations++;
    return CN_OK;
}

// The second raise came while the registration of the first was answered, and nothing in the round
// changes after it.
static void a_second_raise_within_seconds_is_asked_for_too(void **state)
{
    static const struct cn_link_ops ops = {.enlist = enlist};
    struct cn_node_owner *node = calloc(1, sizeof(*node));
    struct cn_settings *settings = calloc(1, sizeof(*settings));
    struct cn_link link = {.ops = &ops};

    (void)state;
    assert_non_null(node);
    assert_non_null(settings);
    settings->group.member_count = 2;
    node->config.settings = settings;
    node->link = &link;
    node->registered = node->working = node->status.has_news = true;
    node->status.news.key_epoch = 2;
    node->manifest.key_epoch = 1;
    node->keys.asked_ms = NOW; // for the first
    assert_int_equal(cn_node_poll_keys(node, NOW + 1000), CN_OK);
    assert_int_equal(registrations, 0);
    assert_int_equal(cn_node_poll_keys(node, NOW + 6000), CN_OK);
    assert_int_equal(registrations, 1);
    node->manifest.key_epoch = 2;
    assert_int_equal(cn_node_poll_keys(node, NOW + 20000), CN_OK);
    assert_int_equal(registrations, 1);
    free(settings);
    free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_raise_within_seconds_is_asked_for_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
