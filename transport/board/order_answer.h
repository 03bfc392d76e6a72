// order_answer.h - sends the answer to an order: PUT o/SEQ/PART/COUNT of PROTOCOL.md.
//
// The parts go one after another, each when the part before was taken; after a refusal no more are
// sent. A newer answer takes the place of one that is under way. Threading: none.
#pragma once

#include "runtime/port/order.h"
#include "transport/transfer/request.h"

struct cn_order_answer {
    struct cn_request asking;
    uint32_t seq;                       // of the order
    bool refused;                       // the board does not do it
    uint8_t bytes[CN_ORDER_ANSWER_MAX]; // of the answer
    size_t size;                        // bytes of the answer
    uint32_t part;                      // the part that is under way
};

// Initialises with no answer. kind is the first byte of the tags. exchange and rtt are borrowed.
void cn_order_answer_init(struct cn_order_answer *answer, struct cn_exchange *exchange,
                          struct cn_rtt *rtt, uint8_t kind, uint64_t seed);

// Begins to send an answer. Copies at most CN_ORDER_ANSWER_MAX bytes.
void cn_order_answer_start(struct cn_order_answer *answer, uint32_t seq, bool refused,
                           const void *bytes, size_t size);

// Sends what is due. Lowers *wake_us to the time of the next request.
void cn_order_answer_step(struct cn_order_answer *answer, uint64_t now_us, uint64_t *wake_us);

// Takes a reply to a part. Returns false when it is to another one.
bool cn_order_answer_reply(struct cn_order_answer *answer, const struct cn_exchange_reply *reply,
                           uint64_t now_us);
