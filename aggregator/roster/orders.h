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
// After this time an order of whose answer nothing has come makes room for another one.
#define CN_ORDERS_SILENT_MS 120000

struct cn_board_order {
    char board[CN_NAME_SIZE];
    struct cn_order order; // seq 0: this place is free
    uint64_t asked_ms;     // clock when it was last asked for
    uint32_t count;        // parts of the whole answer; 0: none has come yet
    uint64_t have;         // bit p: part p has come
    size_t size;           // bytes of the answer, once it is whole
    bool refused;          // the board does not do it; the answer says why
    bool done;             // the answer is whole, and its text is cleaned
    bool shown;            // an operator has seen the answer
    char *text;            // owned; the answer
};

struct cn_orders {
    struct cn_board_order all[CN_ORDERS_MAX];
    uint32_t newest; // seq of the newest order
};

// Frees the answers.
void cn_orders_deinit(struct cn_orders *orders);

// Asks a board. now_ms is the clock. unix_s are the seconds since 1970: the numbers of orders start
// there, so that they grow over restarts. An open order of the same kind stays, and so does the
// same order if it is answered and nobody has seen the answer. Returns CN_EBUSY when the board was
// asked less than CN_ORDERS_AGAIN_MS ago, has another order open, or too many orders are open;
// CN_ENOMEM.
cn_err cn_orders_ask(struct cn_orders *orders, const char *board, const struct cn_order *order,
                     uint64_t now_ms, uint32_t unix_s);

// Returns the open order of a board; zeros: there is none.
struct cn_order cn_orders_open(struct cn_orders *orders, const char *board, uint64_t now_ms);

// A part of an answer.
struct cn_order_part {
    uint32_t seq, part, count; // number of the order; of this part; of all parts
    bool refused;
    const void *bytes;
    size_t size; // bytes: CN_ORDER_PART, or at most that for the last part
};

// Takes a part of a board's answer. A part that does not fit those before begins the answer again:
// a board that was started again has another answer. Returns CN_ENOTFOUND when no order of this
// number is open for this board, CN_EFORMAT for a part that no answer has.
cn_err cn_orders_add_part(struct cn_orders *orders, const char *board, uint64_t now_ms,
                          const struct cn_order_part *part);

// Returns the newest order of a board with its answer, or NULL.
struct cn_board_order *cn_orders_find(struct cn_orders *orders, const char *board, uint64_t now_ms);

// Forgets the order of a board and its answer. Call it when the name may stand for another board.
void cn_orders_drop(struct cn_orders *orders, const char *board);
