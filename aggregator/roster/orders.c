#include "aggregator/roster/orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/printable.h"
#include "runtime/base/utf8.h"

static void drop(struct cn_board_order *order)
{
    free(order->text);
    *order = (struct cn_board_order){0};
}

void cn_orders_deinit(struct cn_orders *orders)
{
    for (size_t i = 0; i < CN_ORDERS_MAX; i++)
        drop(&orders->all[i]);
}

static bool is_old(const struct cn_board_order *order, uint64_t now_ms)
{
    return now_ms - order->asked_ms >= CN_ORDERS_KEPT_MS;
}

static bool is_of(const struct cn_board_order *order, const char *board, uint64_t now_ms)
{
    return order->order.seq && strcmp(order->board, board) == 0 && !is_old(order, now_ms);
}

struct cn_board_order *cn_orders_find(struct cn_orders *orders, const char *board, uint64_t now_ms)
{
    for (size_t i = 0; i < CN_ORDERS_MAX; i++)
        if (is_of(&orders->all[i], board, now_ms))
            return &orders->all[i];
    return NULL;
}

void cn_orders_drop(struct cn_orders *orders, const char *board)
{
    for (size_t i = 0; i < CN_ORDERS_MAX; i++)
        if (strcmp(orders->all[i].board, board) == 0)
            drop(&orders->all[i]);
}

struct cn_order cn_orders_open(struct cn_orders *orders, const char *board, uint64_t now_ms)
{
    const struct cn_board_order *found = cn_orders_find(orders, board, now_ms);
    return found && !found->done ? found->order : (struct cn_order){0};
}

// Returns a place for an order: a free or forgotten one, else the oldest of those that were seen,
// or whose board has been silent for long.
static struct cn_board_order *find_place(struct cn_orders *orders, uint64_t now_ms)
{
    struct cn_board_order *oldest = NULL;
    for (size_t i = 0; i < CN_ORDERS_MAX; i++) {
        struct cn_board_order *order = &orders->all[i];
        bool silent = !order->count && now_ms - order->asked_ms >= CN_ORDERS_SILENT_MS;
        if (!order->order.seq || is_old(order, now_ms))
            return order;
        if ((order->shown || silent) && (!oldest || order->asked_ms < oldest->asked_ms))
            oldest = order;
    }
    return oldest;
}

cn_err cn_orders_ask(struct cn_orders *orders, const char *board, const struct cn_order *order,
                     uint64_t now_ms, uint32_t unix_s)
{
    struct cn_board_order *place = cn_orders_find(orders, board, now_ms);
    if (place && !place->shown && place->order.kind == order->kind &&
        (place->order.lines == order->lines || !place->done)) {
        place->asked_ms = now_ms;
        return CN_OK;
    }
    if (place && (!place->done || now_ms - place->asked_ms < CN_ORDERS_AGAIN_MS))
        return CN_EBUSY;
    if (!place)
        place = find_place(orders, now_ms);
    if (!place)
        return CN_EBUSY;
    char *text = malloc(CN_ORDER_ANSWER_MAX + 1);
    if (!text)
        return CN_ENOMEM;
    drop(place);
    orders->newest = unix_s > orders->newest ? unix_s : orders->newest + 1;
    place->order = *order;
    place->order.seq = orders->newest;
    place->asked_ms = now_ms;
    place->text = text;
    snprintf(place->board, sizeof(place->board), "%s", board);
    return CN_OK;
}

// Replaces what is neither a printable character nor the end of a line or a tab.
static void clean(char *text, size_t size)
{
    text[size] = '\0';
    for (size_t i = 0; i < size;) {
        uint32_t point;
        size_t length = text[i] ? cn_utf8_read(text + i, &point) : 0;
        bool shown = length && (point == '\n' || point == '\t' || cn_is_printable(point));
        for (size_t end = i + (length ? length : 1); i < end; i++)
            if (!shown)
                text[i] = '?';
    }
}

// Returns whether a part does not belong to the answer that has come so far.
static bool is_of_another(const struct cn_board_order *order, const struct cn_order_part *part)
{
    return order->count != part->count ||
           (order->have >> part->part & 1 && part->size &&
            memcmp(order->text + (size_t)part->part * CN_ORDER_PART, part->bytes, part->size) != 0);
}

cn_err cn_orders_add_part(struct cn_orders *orders, const char *board, uint64_t now_ms,
                          const struct cn_order_part *part)
{
    struct cn_board_order *order = cn_orders_find(orders, board, now_ms);
    if (!order || order->done || order->order.seq != part->seq)
        return CN_ENOTFOUND;
    bool last = part->part + 1 == part->count;
    if (!part->count || part->count > CN_ORDER_PARTS || part->part >= part->count ||
        part->size > CN_ORDER_PART || (!last && part->size < CN_ORDER_PART))
        return CN_EFORMAT;
    if (is_of_another(order, part))
        order->have = 0;
    order->count = part->count;
    order->refused = part->refused;
    if (part->size)
        memcpy(order->text + (size_t)part->part * CN_ORDER_PART, part->bytes, part->size);
    order->have |= 1ull << part->part;
    if (last)
        order->size = (size_t)part->part * CN_ORDER_PART + part->size;
    if (order->have != (part->count < 64 ? (1ull << part->count) - 1 : UINT64_MAX))
        return CN_OK;
    clean(order->text, order->size);
    order->done = true;
    return CN_OK;
}
