// order.h - what an operator asks of a board through the gateway.
//
// Boards are often behind network address translation, so the gateway cannot call them. An order
// waits there until the board asks: the gateway adds it to the round that the board watches, or to
// the answer to the board's report of health.
#pragma once

#include <stdint.h>

enum cn_order_kind {
    CN_ORDER_LOG = 1,  // the newest lines of the board's log
    CN_ORDER_SELFTEST, // a report of the board and its speed (cairn-node selftest)
};

struct cn_order {
    uint32_t seq;   // grows with each order of a gateway; 0: there is none
    uint32_t kind;  // enum cn_order_kind; a newer gateway may know more
    uint32_t lines; // for CN_ORDER_LOG: most lines that are wanted
};

#define CN_ORDER_LINES_MAX 1000         // most lines of a log that may be asked for
#define CN_ORDER_ANSWER_MAX (32u << 10) // most bytes of an answer
#define CN_ORDER_PART 512u              // bytes of a part of an answer; the last may be shorter
#define CN_ORDER_PARTS (CN_ORDER_ANSWER_MAX / CN_ORDER_PART)
