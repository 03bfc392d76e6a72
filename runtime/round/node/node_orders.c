// node_orders.c - what an operator asks of this board through the gateway (runtime/port/order.h).
//
// The board's profile decides (`remote`): without its permission the answer says so. An order is
// carried out once, and at most one in SHORTEST_MS. A self-test is this program again, as a process
// of its own: it measures how fast the board trains beside what it does anyway.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/log_recent.h"
#include "runtime/port/platform.h"
#include "runtime/round/node/node_private.h"

#define SHORTEST_MS 10000
#define TEST_LIMIT_S 300      // longest self-test
#define TEST_AGAIN_MS 3600000 // least time between two: each writes 16 MiB

static const char *const names[] = {[CN_ORDER_LOG] = "log", [CN_ORDER_SELFTEST] = "selftest"};
static const enum cn_remote needs[] = {
    [CN_ORDER_LOG] = CN_REMOTE_LOG, [CN_ORDER_SELFTEST] = CN_REMOTE_SELFTEST};

static void refuse(struct cn_node_owner *node, uint32_t seq, const char *why)
{
    char text[160];
    int size = snprintf(text, sizeof(text), "%s\n", why);

    node->link->ops->answer(node->link, seq, true, text, (size_t)size);
}

static void send_log(struct cn_node_owner *node, const struct cn_order *order)
{
    char *text = malloc(CN_ORDER_ANSWER_MAX);

    if (text)
        node->link->ops->answer(node->link, order->seq, false, text,
                                cn_log_recent_read(order->lines, text, CN_ORDER_ANSWER_MAX));
    else
        refuse(node, order->seq, cn_err_text(CN_ENOMEM));
    free(text);
}

static void start_test(struct cn_node_owner *node, uint32_t seq, uint64_t now_ms)
{
    char *arguments[] = {"cairn-node", "selftest", "--state",
                         (char *)(uintptr_t)node->config.settings->state, NULL};
    cn_err err;

    if (node->order.test_ms && now_ms - node->order.test_ms < TEST_AGAIN_MS) {
        refuse(node, seq, "this board has tested itself within the hour, and does it once an hour");
        return;
    }
    err =
        cn_platform_start_self(arguments, TEST_LIMIT_S, &node->order.output, &node->order.process);
    if (err) {
        refuse(node, seq, cn_err_text(err));
        return;
    }
    node->order.tests = true;
    node->order.test_ms = now_ms;
    node->order.test_seq = seq;
}

// Sends what the self-test printed, if it has ended.
static void poll_test(struct cn_node_owner *node)
{
    enum cn_hook_state state;
    char *text;
    ssize_t size;
    int code;

    if (!node->order.tests)
        return;
    state = cn_platform_poll_hook(node->order.process, &code);
    if (state == CN_HOOK_RUNNING)
        return;
    node->order.tests = false;
    text = malloc(CN_ORDER_ANSWER_MAX);
    size = text ? pread(node->order.output, text, CN_ORDER_ANSWER_MAX, 0) : -1;
    if (size > 0)
        node->link->ops->answer(node->link, node->order.test_seq, false, text, (size_t)size);
    else
        refuse(node, node->order.test_seq,
               state == CN_HOOK_LATE ? "the self-test took longer than 5 minutes"
                                     : "the self-test ended without a report");
    free(text);
    close(node->order.output);
}

static void carry_out(struct cn_node_owner *node, const struct cn_order *order, uint64_t now_ms)
{
    char text[128];

    if (order->kind != CN_ORDER_LOG && order->kind != CN_ORDER_SELFTEST) {
        refuse(node, order->seq, "this cairn-node does not know what was asked");
        return;
    }
    if (node->config.settings->remote < needs[order->kind]) {
        snprintf(text, sizeof(text),
                 "this board's profile does not permit it: it would take `remote: %s`",
                 names[order->kind]);
        refuse(node, order->seq, text);
    } else if (cn_traffic_is_scarce(&node->traffic, &node->limits, cn_upkeep_day_ms())) {
        refuse(node, order->seq,
               "the bytes of this board's day are used up, or its link is metered: ask later");
    } else if (order->kind == CN_ORDER_LOG) {
        send_log(node, order);
    } else {
        start_test(node, order->seq, now_ms);
    }
    cn_log_within(&node->link_lines, now_ms, CN_LOG_INFO, "node",
                  "an operator of the gateway asks for this board's %s%s", names[order->kind],
                  node->config.settings->remote < needs[order->kind]
                      ? ", which its profile does not permit"
                      : "");
}

void cn_node_take_order(struct cn_node_owner *node, const struct cn_order *order)
{
    if (order->seq && order->seq != node->order.seq)
        node->order.next = *order;
}

void cn_node_poll_order(struct cn_node_owner *node, uint64_t now_ms)
{
    struct cn_order order = node->order.next;

    poll_test(node);
    if (!order.seq || (node->order.ms && now_ms - node->order.ms < SHORTEST_MS))
        return;
    node->order.next = (struct cn_order){0};
    node->order.seq = order.seq;
    node->order.ms = now_ms;
    carry_out(node, &order, now_ms);
}
