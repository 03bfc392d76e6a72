#include "transport/transfer/request.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define TIMEOUT_MAX_MS 16000
#define LATER_MIN_MS 1000
#define LATER_MAX_MS 60000
#define UNCONNECTED_US 100000

void cn_request_init(struct cn_request *call, struct cn_exchange *exchange, struct cn_rtt *rtt,
                     uint8_t kind, uint64_t seed)
{
    *call = (struct cn_request){.exchange = exchange, .rtt = rtt, .kind = kind};
    call->backoff.seed = seed ^ (uint64_t)kind << 56;
}

void cn_request_start(struct cn_request *call, enum cn_coap_method method, const char *path,
                      const uint8_t *body, size_t size)
{
    assert(strlen(path) < sizeof(call->path) && size <= sizeof(call->body));
    call->method = method;
    snprintf(call->path, sizeof(call->path), "%s", path);
    if (size)
        memcpy(call->body, body, size);
    call->size = size;
    call->active = true;
    call->number++;
    call->attempt = 0;
    call->due_us = 0;
    call->backoff.tries = 0;
}

void cn_request_stop(struct cn_request *call)
{
    call->active = false;
}

void cn_request_hurry(struct cn_request *call)
{
    call->due_us = 0;
    call->backoff.tries = 0;
}

static uint64_t tag(const struct cn_request *call)
{
    return (uint64_t)call->kind << 56 | (uint64_t)(call->number & 0xffffff) << 32 | call->attempt;
}

void cn_request_again(struct cn_request *call, uint64_t named, uint64_t now_us)
{
    if (!call->active || named != tag(call))
        return;
    cn_rtt_add(call->rtt, now_us - call->sent_us);
    cn_request_hurry(call);
}

// Returns a wait drawn from [0.75, 1.5] time-outs, doubled for each repetition.
static uint64_t timeout_us(struct cn_request *call)
{
    call->backoff.min_ms = 3 * cn_rtt_timeout_us(call->rtt) / 2000;
    call->backoff.max_ms = TIMEOUT_MAX_MS;
    return 1000 * cn_backoff_next_ms(&call->backoff);
}

void cn_request_step(struct cn_request *call, uint64_t now_us, uint64_t *wake_us)
{
    struct cn_exchange_request request = {
        .method = call->method,
        .path = call->path,
        .body = call->body,
        .size = call->size,
        .observe = call->observe,
    };

    if (!call->active)
        return;
    if (now_us >= call->due_us) {
        call->attempt++;
        request.tag = tag(call);
        if (call->exchange->ops->send(call->exchange, &request)) {
            call->due_us = now_us + UNCONNECTED_US;
        } else {
            call->sent_us = now_us;
            call->due_us = now_us + timeout_us(call);
        }
    }
    if (call->due_us < *wake_us)
        *wake_us = call->due_us;
}

static bool says_later(unsigned code)
{
    return code == CN_COAP_UNAUTHORIZED || code == CN_COAP_TOO_MANY ||
           code >= CN_COAP_INTERNAL_ERROR;
}

bool cn_request_answered(struct cn_request *call, const struct cn_exchange_reply *reply,
                         uint64_t now_us, bool *mine)
{
    *mine = call->active && reply->tag >> 32 == tag(call) >> 32;
    if (!*mine)
        return false;
    if ((uint16_t)reply->tag == call->attempt)
        cn_rtt_add(call->rtt, now_us - call->sent_us);
    if (says_later(reply->code)) {
        call->backoff.min_ms = LATER_MIN_MS;
        call->backoff.max_ms = LATER_MAX_MS;
        call->due_us = now_us + 1000 * cn_backoff_next_ms(&call->backoff);
        if (reply->max_age_s)
            call->due_us = now_us + 1000000ull * reply->max_age_s;
        return false;
    }
    call->active = false;
    return true;
}
