// node_orders.c - what an operator asks of this board through the gateway (runtime/port/order.h).
//
// The board's profile decides: without `remote: log` the answer says so. An order is carried out
// once, and at most one in SHORTEST_MS.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/log_recent.h"
#include "runtime/port/platform.h"
#include "runtime/round/node/node_private.h"

#define SHORTEST_MS 10000

static size_t make_answer(const struct cn_node_owner *node, const struct cn_order *order,
                          char text[CN_ORDER_ANSWER_MAX])
{
    if (order->kind != CN_ORDER_LOG)
        return (size_t)snprintf(text, CN_ORDER_ANSWER_MAX,
                                "this cairn-node does not know what was asked\n");
    if (node->config.settings->remote != CN_REMOTE_LOG)
        return (size_t)snprintf(text, CN_ORDER_ANSWER_MAX,
                                "this board keeps its log to itself; with `remote: log` in its "
                                "profile it would show it\n");
    if (cn_traffic_is_scarce(&node->traffic, &node->limits, cn_upkeep_day_ms()))
        return (size_t)snprintf(text, CN_ORDER_ANSWER_MAX,
                                "the bytes of this board's day are used up, or its link is "
                                "metered: ask later\n");
    return cn_log_recent_read(order->lines, text, CN_ORDER_ANSWER_MAX);
}

void cn_node_take_order(struct cn_node_owner *node, const struct cn_order *order, uint64_t now_ms)
{
    char *text;
    size_t size;

    if (!order->seq || order->seq == node->order.seq ||
        (node->order.ms && now_ms - node->order.ms < SHORTEST_MS))
        return;
    text = malloc(CN_ORDER_ANSWER_MAX);
    if (!text)
        return; // the order comes again
    node->order.seq = order->seq;
    node->order.ms = now_ms;
    size = make_answer(node, order, text);
    node->link->ops->answer(node->link, order->seq, text, size);
    cn_log(CN_LOG_INFO, "node", "an operator of the gateway asks for the log: %zu bytes are sent%s",
           size,
           node->config.settings->remote == CN_REMOTE_LOG ? "" : ", which say that it is kept");
    free(text);
}
