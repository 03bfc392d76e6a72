// request.h - one small request that is repeated until it is answered.
//
// The time-out follows from the round-trip estimate and doubles with each repetition, with jitter,
// up to 16 s. A reply that says "later" (4.01, 4.29, 5.xx) does not answer the request: it is
// repeated after Max-Age or a back-off. Threading: none.
#pragma once

#include "transport/coap/exchange.h"
#include "transport/coap/retry.h"
#include "transport/message/message.h"

struct cn_request {
    struct cn_exchange *exchange;
    struct cn_rtt *rtt;
    uint8_t kind; // first byte of the tags
    bool active;  // the request is not answered yet
    bool observe; // sends it with an Observe option
    enum cn_coap_method method;
    char path[96];
    uint8_t body[CN_MESSAGE_MAX];
    size_t size;
    uint32_t number;  // counts the requests, as part of the tag
    uint16_t attempt; // counts the transmissions of this request, as part of the tag
    uint64_t sent_us; // time of the last transmission
    uint64_t due_us;  // time of the next transmission
    struct cn_backoff backoff;
};

// Borrows exchange and rtt. seed: of the jitter.
void cn_request_init(struct cn_request *call, struct cn_exchange *exchange, struct cn_rtt *rtt,
                     uint8_t kind, uint64_t seed);

// Starts a request in place of the one under way. Copies path and body, which must fit into the
// fields. cn_request_step sends it.
void cn_request_start(struct cn_request *call, enum cn_coap_method method, const char *path,
                      const uint8_t *body, size_t size);
void cn_request_stop(struct cn_request *call);

// Makes the request due at once, for a new session.
void cn_request_hurry(struct cn_request *call);

// Makes the request due at once if tag names its last transmission, whose answer was held back
// (cn_exchange_again).
void cn_request_again(struct cn_request *call, uint64_t tag, uint64_t now_us);

// Sends the request if it is due; lowers *wake_us to the time when it is due next.
void cn_request_step(struct cn_request *call, uint64_t now_us, uint64_t *wake_us);

// Takes a reply. Returns true when it is the final answer, which ends the request. Sets *mine to
// whether the reply belongs to this request.
bool cn_request_answered(struct cn_request *call, const struct cn_exchange_reply *reply,
                         uint64_t now_us, bool *mine);
