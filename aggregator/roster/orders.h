// orders.h - what operators asked of boards, and what the boards answered.
//
// Orders live in memory: a restart forgets them. There are at most CN_ORDERS_MAX, each with at most
// CN_ORDER_ANSWER_MAX bytes, and only the board that was asked can fill in its answer.
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/port/order.h"
#include "runtime/profile/profile.h"

#define CN_ORDERS_MAX 16
#define CN_ORDERS_KEPT_MS 600000 // an order and its answer are forgotten after this time
#define CN_ORDERS_AGAIN_MS 15000 // least time between two orders to one board

struct cn_board_order {
    char board[CN_NAME_SIZE];
    struct cn_order order; // seq 0: this place is free
    uint64_t asked_ms;     // clock
    uint32_t count;        // parts of the answer; 0: none has come
    uint64_t have;         // bit p: part p has come
    size_t size;           // bytes of the answer, once it is whole
    bool done;             // the answer is whole, and its text is cleaned
    char *text;            // owned; the answer
};

struct cn_orders {
    struct cn_board_order all[CN_ORDERS_MAX];
    uint32_t newest; // seq of the newest order
};

// Frees the answers.
void cn_orders_deinit(struct cn_orders *orders);

// Asks a board. now_ms is the clock; unix_s the seconds since 1970, from which numbers start, so
// that they grow over restarts. The same order while one is open is that one. CN_EBUSY when the
// board was asked a moment ago or too many orders are open; CN_ENOMEM.
cn_err cn_orders_ask(struct cn_orders *orders, const char *board, const struct cn_order *order,
                     uint64_t now_ms, uint32_t unix_s);

// Returns the open order of a board; zeros: there is none.
struct cn_order cn_orders_open(const struct cn_orders *orders, const char *board, uint64_t now_ms);

// Takes a part of a board's answer. The last part is shorter or as long as the others. CN_ENOTFOUND
// when nothing of this number was asked of this board or it is answered; CN_EFORMAT for parts that
// do not fit together.
cn_err cn_orders_take(struct cn_orders *orders, const char *board, uint64_t now_ms,
                      const uint32_t path[3], const void *bytes, size_t size);

// Returns the newest order of a board with its answer, or NULL.
const struct cn_board_order *cn_orders_find(const struct cn_orders *orders, const char *board,
                                            uint64_t now_ms);
