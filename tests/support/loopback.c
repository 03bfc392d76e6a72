#include "tests/support/loopback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/random.h"
#include "transport/coap/route.h"

#define PATH_SIZE 256
#define QUEUE_MAX 1024 // most messages in the queue; further ones are dropped, as a router does
#define BURST 256      // messages that a step handles
#define HEADER 12      // bytes of a CoAP message around its body
#define BODY_MAX 1424  // largest body of a message
#define BODY 1152      // usual largest body

struct message {
    struct message *next;
    bool is_request;
    uint64_t tag;
    unsigned code; // method of a request, code of an answer
    bool silent, observe;
    uint32_t max_age_s, sequence;
    char path[PATH_SIZE];
    size_t size;
    uint8_t body[BODY_MAX];
};

struct loopback {
    struct cn_exchange base;
    struct cn_loopback_config config;
    struct message *first;
    uint32_t count;
    uint64_t draws;
    // The only observation that is supported: that of the round.
    bool observed;
    struct message observation;
    uint32_t sequence;
};

static uint32_t draw(struct loopback *loopback)
{
    uint32_t random[4];

    cn_random_block(loopback->config.seed, 0, loopback->draws++, random);
    return random[0];
}

static bool happens(struct loopback *loopback, uint32_t rate)
{
    return draw(loopback) % 1000 < rate;
}

// Adds a message to the queue; a reordered one is put at a random place.
static void insert(struct loopback *loopback, const struct message *message)
{
    struct message **place = &loopback->first;
    uint32_t steps = loopback->count;
    struct message *copy;

    if (loopback->count >= QUEUE_MAX)
        return;
    copy = malloc(sizeof(*copy));
    if (!copy)
        return; // lost
    *copy = *message;
    if (steps && happens(loopback, loopback->config.reordered))
        steps = draw(loopback) % steps;
    while (steps--)
        place = &(*place)->next;
    copy->next = *place;
    *place = copy;
    loopback->count++;
    eventfd_write(loopback->base.descriptor, 1);
}

static void transmit(struct loopback *loopback, const struct message *message)
{
    if (loopback->config.mtu && message->size > loopback->config.mtu)
        return;
    if (!happens(loopback, loopback->config.lost))
        insert(loopback, message);
    if (happens(loopback, loopback->config.repeated))
        insert(loopback, message);
}

static void serve(struct loopback *loopback, const struct message *message)
{
    struct cn_coap_request request = {
        .board = loopback->config.board,
        .body = message->body,
        .size = message->size,
        .wants_reply = !message->silent,
        .reply_max = loopback->base.body_max,
    };
    struct cn_coap_reply reply;
    struct message answer = {.tag = message->tag, .observe = message->observe};

    cn_route_dispatch(loopback->config.routes, loopback->config.route_count,
                      loopback->config.context, message->code, message->path, &request, &reply);
    if (reply.code == CN_COAP_SILENT || (message->silent && reply.code < CN_COAP_BAD_REQUEST))
        return;
    answer.code = reply.code;
    answer.max_age_s = reply.max_age_s;
    answer.sequence = loopback->sequence;
    answer.size = reply.size;
    memcpy(answer.body, reply.body, reply.size);
    if (message->observe && reply.code < CN_COAP_BAD_REQUEST) {
        loopback->observed = true;
        loopback->observation = *message;
    }
    transmit(loopback, &answer);
}

static void deliver(struct loopback *loopback, const struct message *message)
{
    struct cn_exchange_reply reply = {
        .tag = message->tag,
        .code = message->code,
        .body = message->body,
        .size = message->size,
        .max_age_s = message->max_age_s,
        .observed = message->observe,
        .sequence = message->sequence,
    };

    loopback->base.stats.down.messages += HEADER + message->size;
    if (!loopback->base.sink(loopback->base.context, &reply) && message->observe)
        loopback->observed = false;
}

static uint64_t step(struct cn_exchange *exchange)
{
    struct loopback *loopback = (struct loopback *)exchange;
    eventfd_t ignored;

    for (int i = 0; i < BURST && loopback->first; i++) {
        struct message *message = loopback->first;

        loopback->first = message->next;
        loopback->count--;
        if (loopback->base.state == CN_EXCHANGE_UP && message->is_request)
            serve(loopback, message);
        else if (loopback->base.state == CN_EXCHANGE_UP)
            deliver(loopback, message);
        free(message);
    }
    if (loopback->first)
        return 0;
    eventfd_read(loopback->base.descriptor, &ignored);
    return UINT64_MAX;
}

static cn_err send_request(struct cn_exchange *exchange, const struct cn_exchange_request *request)
{
    struct loopback *loopback = (struct loopback *)exchange;
    struct message message = {
        .is_request = true,
        .tag = request->tag,
        .code = request->method,
        .silent = request->silent,
        .observe = request->observe,
        .size = request->size,
    };

    if (loopback->base.state != CN_EXCHANGE_UP)
        return CN_EAGAIN;
    if (request->size > loopback->base.body_max || strlen(request->path) >= PATH_SIZE)
        return CN_ERANGE;
    snprintf(message.path, sizeof(message.path), "%s", request->path);
    if (request->size)
        memcpy(message.body, request->body, request->size);
    loopback->base.stats.up.messages += HEADER + strlen(request->path) + request->size;
    transmit(loopback, &message);
    return CN_OK;
}

static cn_err use_stream(struct cn_exchange *exchange, bool stream)
{
    (void)exchange, (void)stream;
    return CN_ENOTSUP;
}

static void close_loopback(struct cn_exchange *exchange)
{
    struct loopback *loopback = (struct loopback *)exchange;
    struct message *next;

    if (!loopback)
        return;
    for (struct message *message = loopback->first; message; message = next) {
        next = message->next;
        free(message);
    }
    close(loopback->base.descriptor);
    free(loopback);
}

static const struct cn_exchange_ops ops = {
    .close = close_loopback,
    .send = send_request,
    .step = step,
    .use_stream = use_stream,
};

cn_err cn_loopback_open(const struct cn_loopback_config *config, struct cn_exchange **exchange)
{
    struct loopback *loopback = calloc(1, sizeof(*loopback));

    if (!loopback)
        return CN_ENOMEM;
    loopback->base.ops = &ops;
    loopback->config = *config;
    loopback->base.state = CN_EXCHANGE_UP;
    loopback->base.sessions = 1;
    loopback->base.body_max = config->body_max ? config->body_max : BODY;
    loopback->base.searches_mtu = config->mtu != 0;
    loopback->base.descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (loopback->base.descriptor < 0) {
        free(loopback);
        return CN_EIO;
    }
    *exchange = &loopback->base;
    return CN_OK;
}

void cn_loopback_notify(struct cn_exchange *exchange, const char *prefix)
{
    struct loopback *loopback = (struct loopback *)exchange;

    if (!loopback->observed || !cn_route_match(prefix, loopback->observation.path))
        return;
    loopback->sequence++;
    serve(loopback, &loopback->observation);
}

void cn_loopback_set_state(struct cn_exchange *exchange, enum cn_exchange_state state,
                           const char *text)
{
    struct loopback *loopback = (struct loopback *)exchange;

    if (state == CN_EXCHANGE_UP && loopback->base.state != CN_EXCHANGE_UP)
        loopback->base.sessions++;
    if (state != CN_EXCHANGE_UP)
        loopback->observed = false;
    loopback->base.state = state;
    snprintf(loopback->base.text, sizeof(loopback->base.text), "%s", text);
    eventfd_write(loopback->base.descriptor, 1);
}

void cn_loopback_set_mtu(struct cn_exchange *exchange, uint32_t mtu)
{
    ((struct loopback *)exchange)->config.mtu = mtu;
}
