// request.h - one small request that is repeated until it is answered.
//
// Time-outs start at the round-trip estimate and double, with jitter, up to 16 s. An answer that
// says "later" (4.01, 4.29, 5.xx) is no answer: the request is repeated after Max-Age or a
// back-off. Threading: none.
#pragma once

#include "transport/coap/exchange.h"
#include "transport/coap/retry.h"
#include "transport/message/message.h"

struct cn_request {
    struct cn_exchange *exchange;
    struct cn_rtt *rtt;
    uint8_t kind; // first byte of its tags
    bool active;
    bool observe;
    enum cn_coap_method method;
    char path[96];
    uint8_t body[CN_MESSAGE_MAX];
    size_t size;
    uint32_t number; // of the call
    uint16_t attempt;
    uint64_t sent_us;
    uint64_t due_us;
    struct cn_backoff backoff;
};

void cn_request_init(struct cn_request *call, struct cn_exchange *exchange, struct cn_rtt *rtt,
                     uint8_t kind, uint64_t seed);

// Starts a call in place of the one under way. path and body are copied.
void cn_request_start(struct cn_request *call, enum cn_coap_method method, const char *path,
                      const uint8_t *body, size_t size);
void cn_request_stop(struct cn_request *call);

// Repeats at once: there is a new session.
void cn_request_hurry(struct cn_request *call);

// The last transmission arrived, and its answer is held back until the next (cn_exchange_again).
void cn_request_again(struct cn_request *call, uint64_t tag, uint64_t now_us);

// Sends when it is due; lowers *wake_us to when it will be.
void cn_request_step(struct cn_request *call, uint64_t now_us, uint64_t *wake_us);

// True when the reply is this call's final answer, which ends it. *mine: a reply to this call at
// all.
bool cn_request_answered(struct cn_request *call, const struct cn_exchange_reply *reply,
                         uint64_t now_us, bool *mine);
