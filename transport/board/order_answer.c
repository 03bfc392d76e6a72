#include "transport/board/order_answer.h"

#include <stdio.h>
#include <string.h>

void cn_order_answer_init(struct cn_order_answer *answer, struct cn_exchange *exchange,
                          struct cn_rtt *rtt, uint8_t kind, uint64_t seed)
{
    *answer = (struct cn_order_answer){0};
    cn_request_init(&answer->asking, exchange, rtt, kind, seed);
}

// Returns the number of parts; an empty answer has one.
static uint32_t count_of(const struct cn_order_answer *answer)
{
    return answer->size ? (uint32_t)((answer->size + CN_ORDER_PART - 1) / CN_ORDER_PART) : 1;
}

static void send_part(struct cn_order_answer *answer)
{
    size_t begin = (size_t)answer->part * CN_ORDER_PART, left = answer->size - begin;
    char path[64];

    snprintf(path, sizeof(path), "o/%u/%u/%u%s", answer->seq, answer->part, count_of(answer),
             answer->refused ? "/no" : "");
    cn_request_start(&answer->asking, CN_COAP_PUT, path, answer->bytes + begin,
                     left < CN_ORDER_PART ? left : CN_ORDER_PART);
}

void cn_order_answer_start(struct cn_order_answer *answer, uint32_t seq, bool refused,
                           const void *bytes, size_t size)
{
    answer->seq = seq;
    answer->refused = refused;
    answer->size = size < CN_ORDER_ANSWER_MAX ? size : CN_ORDER_ANSWER_MAX;
    memcpy(answer->bytes, bytes, answer->size);
    answer->part = 0;
    send_part(answer);
}

void cn_order_answer_step(struct cn_order_answer *answer, uint64_t now_us, uint64_t *wake_us)
{
    cn_request_step(&answer->asking, now_us, wake_us);
}

bool cn_order_answer_reply(struct cn_order_answer *answer, const struct cn_exchange_reply *reply,
                           uint64_t now_us)
{
    bool mine, ended = cn_request_answered(&answer->asking, reply, now_us, &mine);

    if (ended && reply->code == CN_COAP_CHANGED && answer->part + 1 < count_of(answer)) {
        answer->part++;
        send_part(answer);
    }
    return mine;
}
