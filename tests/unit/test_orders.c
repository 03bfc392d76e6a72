// What operators ask of boards: the orders at the gateway, and the lines of the log that a board
// keeps for them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/roster/orders.h"
#include "runtime/base/log.h"
#include "runtime/base/log_recent.h"

static const struct cn_order wanted = {.kind = CN_ORDER_LOG, .lines = 5};

static int open_orders(void **state)
{
    static struct cn_orders orders;

    orders = (struct cn_orders){0};
    *state = &orders;
    return 0;
}

static int close_orders(void **state)
{
    cn_orders_deinit(*state);
    return 0;
}

static cn_err take(struct cn_orders *orders, const char *board, uint32_t seq, uint32_t part,
                   uint32_t count, const char *text)
{
    const struct cn_order_part taken = {
        .seq = seq, .part = part, .count = count, .bytes = text, .size = strlen(text)};

    return cn_orders_add_part(orders, board, 1000, &taken);
}

static void an_order_waits_for_its_board_and_takes_the_parts_in_any_order(void **state)
{
    struct cn_orders *orders = *state;
    char full[CN_ORDER_PART + 1];
    uint32_t seq;

    memset(full, 'x', CN_ORDER_PART);
    full[CN_ORDER_PART] = '\0';
    assert_int_equal(cn_orders_open(orders, "a", 1000).seq, 0);
    assert_int_equal(cn_orders_ask(orders, "a", &wanted, 1000, 77), CN_OK);
    seq = cn_orders_open(orders, "a", 1000).seq;
    assert_int_equal(seq, 77);
    assert_int_equal(cn_orders_open(orders, "a", 1000).lines, 5);
    assert_int_equal(cn_orders_open(orders, "b", 1000).seq, 0);
    assert_int_equal(take(orders, "a", seq, 1, 2, "end\n"), CN_OK);
    assert_false(cn_orders_find(orders, "a", 1000)->done);
    assert_int_equal(take(orders, "a", seq, 0, 2, full), CN_OK);
    assert_true(cn_orders_find(orders, "a", 1000)->done);
    assert_int_equal(cn_orders_find(orders, "a", 1000)->size, CN_ORDER_PART + 4);
    assert_string_equal(cn_orders_find(orders, "a", 1000)->text + CN_ORDER_PART, "end\n");
    assert_int_equal(cn_orders_open(orders, "a", 1000).seq, 0);
}

static void only_the_board_that_was_asked_fills_in_and_only_what_fits(void **state)
{
    struct cn_orders *orders = *state;
    char full[CN_ORDER_PART + 2];

    memset(full, 'x', sizeof(full) - 1);
    full[CN_ORDER_PART + 1] = '\0';
    assert_int_equal(cn_orders_ask(orders, "a", &wanted, 1000, 77), CN_OK);
    assert_int_equal(take(orders, "b", 77, 0, 1, "text"), CN_ENOTFOUND);
    assert_int_equal(take(orders, "a", 76, 0, 1, "text"), CN_ENOTFOUND);
    assert_int_equal(take(orders, "a", 77, 0, 0, "text"), CN_EFORMAT);
    assert_int_equal(take(orders, "a", 77, 1, 1, "text"), CN_EFORMAT);
    assert_int_equal(take(orders, "a", 77, 0, CN_ORDER_PARTS + 1, "text"), CN_EFORMAT);
    assert_int_equal(take(orders, "a", 77, 0, 2, "short"), CN_EFORMAT);
    assert_int_equal(take(orders, "a", 77, 0, 1, full), CN_EFORMAT);
    full[CN_ORDER_PART] = '\0';
    assert_int_equal(take(orders, "a", 77, 0, CN_ORDER_PARTS, full), CN_OK);
    assert_int_equal(take(orders, "a", 77, 1, 3, full), CN_OK);
    assert_int_equal(take(orders, "a", 77, 0, CN_ORDER_PARTS, full), CN_OK); // begins again
    for (uint32_t p = 1; p < CN_ORDER_PARTS; p++)
        assert_int_equal(take(orders, "a", 77, p, CN_ORDER_PARTS, full), CN_OK);
    assert_int_equal(cn_orders_find(orders, "a", 1000)->size, CN_ORDER_ANSWER_MAX);
    assert_int_equal(take(orders, "a", 77, 0, 1, "again"), CN_ENOTFOUND);
}

static void what_cannot_be_printed_is_replaced(void **state)
{
    struct cn_orders *orders = *state;

    assert_int_equal(cn_orders_ask(orders, "a", &wanted, 1000, 77), CN_OK);
    assert_int_equal(
        take(orders, "a", 77, 0, 1, "a\tb\n\x1b[31m\xc3\xa4\xff\xc2\x9b!\x7f\n\xe2\x80\xae"),
        CN_OK);
    assert_string_equal(cn_orders_find(orders, "a", 1000)->text, "a\tb\n?[31m\xc3\xa4?"
                                                                 "?"
                                                                 "?!?\n?"
                                                                 "?"
                                                                 "?");
}

static void orders_are_few_and_are_forgotten(void **state)
{
    struct cn_orders *orders = *state;
    const struct cn_order other = {.kind = CN_ORDER_SELFTEST};
    const uint64_t later_ms = 1000 + CN_ORDERS_AGAIN_MS, end_ms = later_ms + CN_ORDERS_KEPT_MS;
    char name[16];

    for (int i = 0; i < CN_ORDERS_MAX; i++) {
        snprintf(name, sizeof(name), "board-%d", i);
        assert_int_equal(cn_orders_ask(orders, name, &wanted, 1000, 50), CN_OK);
    }
    assert_int_equal(cn_orders_open(orders, "board-1", 1000).seq, 51);
    assert_int_equal(cn_orders_ask(orders, "late", &wanted, 1000, 50), CN_EBUSY);
    assert_int_equal(cn_orders_ask(orders, "board-1", &wanted, 1000, 50), CN_OK); // the same one
    assert_int_equal(cn_orders_open(orders, "board-1", 1000).seq, 51);
    assert_int_equal(cn_orders_ask(orders, "board-1", &other, later_ms, 50), CN_EBUSY);
    assert_int_equal(take(orders, "board-2", 52, 0, 1, "text"), CN_OK);
    assert_int_equal(cn_orders_ask(orders, "late", &wanted, later_ms, 50), CN_EBUSY); // not seen
    assert_int_equal(cn_orders_ask(orders, "board-2", &wanted, later_ms, 50), CN_OK);
    assert_true(cn_orders_find(orders, "board-2", later_ms)->done);
    cn_orders_find(orders, "board-2", later_ms)->shown = true;
    assert_int_equal(cn_orders_ask(orders, "late", &wanted, later_ms, 50), CN_OK);
    assert_null(cn_orders_find(orders, "board-2", later_ms));
    cn_orders_drop(orders, "late");
    assert_null(cn_orders_find(orders, "late", later_ms));
    assert_int_equal(cn_orders_ask(orders, "silent", &wanted, later_ms, 50), CN_OK);
    assert_int_equal(cn_orders_ask(orders, "full", &wanted, later_ms, 50), CN_EBUSY);
    assert_int_equal(cn_orders_ask(orders, "full", &wanted, later_ms + CN_ORDERS_SILENT_MS, 50),
                     CN_OK);
    assert_null(cn_orders_find(orders, "board-0", later_ms));
    assert_null(cn_orders_find(orders, "silent", end_ms));
    assert_int_equal(cn_orders_ask(orders, "new", &wanted, end_ms, 40), CN_OK);
    assert_true(cn_orders_open(orders, "new", end_ms).seq > 66);
}

static void assert_recent(uint32_t lines, size_t size, const char *text)
{
    char found[256];
    size_t length = cn_log_recent_read(lines, found, size);

    assert_int_equal(length, strlen(text));
    assert_memory_equal(found, text, length);
}

static void the_newest_whole_lines_are_kept(void **state)
{
    (void)state;
    cn_log_recent_add("lost\n", 5);
    assert_recent(9, 100, "");
    assert_int_equal(cn_log_recent_open(20), CN_OK);
    assert_recent(9, 100, "");
    cn_log_recent_add("one\n", 4);
    cn_log_recent_add("two\n", 4);
    assert_recent(9, 100, "one\ntwo\n");
    assert_recent(1, 100, "two\n");
    assert_recent(0, 100, "");
    assert_recent(9, 7, "two\n");
    cn_log_recent_add("three\n", 6);
    cn_log_recent_add("four\n", 5); // 19 bytes
    assert_recent(9, 100, "one\ntwo\nthree\nfour\n");
    cn_log_recent_add("5\n", 2); // a byte of the first line is lost
    assert_recent(9, 100, "two\nthree\nfour\n5\n");
    cn_log_recent_add("a line longer than all\n", 23);
    assert_recent(9, 100, "");
    cn_log(CN_LOG_DEBUG, "test", "not written, so not kept");
    assert_recent(9, 100, "");
    cn_log_recent_close();
    assert_recent(9, 100, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            an_order_waits_for_its_board_and_takes_the_parts_in_any_order, open_orders,
            close_orders),
        cmocka_unit_test_setup_teardown(only_the_board_that_was_asked_fills_in_and_only_what_fits,
                                        open_orders, close_orders),
        cmocka_unit_test_setup_teardown(what_cannot_be_printed_is_replaced, open_orders,
                                        close_orders),
        cmocka_unit_test_setup_teardown(orders_are_few_and_are_forgotten, open_orders,
                                        close_orders),
        cmocka_unit_test(the_newest_whole_lines_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
