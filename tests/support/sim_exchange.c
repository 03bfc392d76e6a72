#include "tests/support/sim_exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/coap/route.h"

#define PATH_SIZE 128

struct message {
    struct message *next;
    uint64_t due_us;
    bool is_request, silent;
    uint64_t tag;
    unsigned code; // method of a request, code of an answer
    char path[PATH_SIZE];
    uint32_t max_age_s;
    size_t size;
    uint8_t body[];
};

struct sim {
    struct cn_exchange base;
    struct cn_sim_config config;
    struct cn_link_model up, down;
    uint64_t now_us;
    struct message *first, *last; // in the order of due_us
};

size_t cn_sim_overhead(const char *path)
{
    size_t coap = 4 + 8 + strlen(path) + 4 + 3 + 1; // header, token, options, No-Response, marker
    size_t dtls = 13 + 8 + 1 + 16;

    return coap + dtls + 28;
}

// Messages mostly leave in the order in which they came, so the search begins at the end.
static void insert(struct sim *sim, const struct message *message, const uint8_t *body,
                   uint64_t due_us)
{
    struct message *copy = malloc(sizeof(*copy) + message->size);
    struct message **place = &sim->first;

    if (!copy)
        abort();
    *copy = *message;
    if (message->size)
        memcpy(copy->body, body, message->size);
    copy->due_us = due_us;
    if (sim->last && sim->last->due_us <= due_us)
        place = &sim->last->next;
    while (*place && (*place)->due_us <= due_us)
        place = &(*place)->next;
    copy->next = *place;
    *place = copy;
    if (!copy->next)
        sim->last = copy;
}

static void transmit(struct sim *sim, struct cn_link_model *model, const struct message *message,
                     const uint8_t *body)
{
    uint64_t leave_us[2];
    size_t size = message->size + cn_sim_overhead(message->path);
    unsigned copies = cn_link_model_offer(model, size, sim->now_us, leave_us);

    for (unsigned i = 0; i < copies; i++)
        insert(sim, message, body, leave_us[i]);
}

static void serve(struct sim *sim, const struct message *message)
{
    struct cn_coap_request request = {
        .board = sim->config.board,
        .body = message->body,
        .size = message->size,
        .wants_reply = !message->silent,
        .reply_max = sim->base.body_max,
    };
    static struct cn_coap_reply reply;
    struct message answer = {.tag = message->tag};

    cn_route_dispatch(sim->config.routes, sim->config.route_count, sim->config.context,
                      message->code, message->path, &request, &reply);
    if (reply.code == CN_COAP_SILENT || (message->silent && reply.code < CN_COAP_BAD_REQUEST))
        return;
    answer.code = reply.code;
    answer.max_age_s = reply.max_age_s;
    answer.size = reply.size;
    transmit(sim, &sim->down, &answer, reply.body);
}

static void deliver(struct sim *sim, const struct message *message)
{
    struct cn_exchange_reply reply = {
        .tag = message->tag,
        .code = message->code,
        .body = message->body,
        .size = message->size,
        .max_age_s = message->max_age_s,
    };

    sim->base.sink(sim->base.context, &reply);
}

void cn_sim_advance(struct cn_exchange *exchange, uint64_t wake_us)
{
    struct sim *sim = (struct sim *)exchange;

    if (sim->first && sim->first->due_us < wake_us)
        wake_us = sim->first->due_us;
    if (wake_us != UINT64_MAX && wake_us > sim->now_us)
        sim->now_us = wake_us;
    while (sim->first && sim->first->due_us <= sim->now_us) {
        struct message *message = sim->first;

        sim->first = message->next;
        if (!sim->first)
            sim->last = NULL;
        if (message->is_request)
            serve(sim, message);
        else
            deliver(sim, message);
        free(message);
    }
}

uint64_t cn_sim_now_us(const struct cn_exchange *exchange)
{
    return ((const struct sim *)exchange)->now_us;
}

void cn_sim_reshape(struct cn_exchange *exchange, const struct cn_link_shape *up,
                    const struct cn_link_shape *down)
{
    struct sim *sim = (struct sim *)exchange;

    sim->up.shape = *up;
    sim->down.shape = *down;
}

uint64_t cn_sim_offer(struct cn_exchange *exchange, size_t size)
{
    struct sim *sim = (struct sim *)exchange;
    uint64_t leave_us[2];

    return cn_link_model_offer(&sim->up, size, sim->now_us, leave_us) ? leave_us[0] : 0;
}

const struct cn_link_counts *cn_sim_counts(const struct cn_exchange *exchange, bool up)
{
    const struct sim *sim = (const struct sim *)exchange;

    return up ? &sim->up.counts : &sim->down.counts;
}

static cn_err send_request(struct cn_exchange *exchange, const struct cn_exchange_request *request)
{
    struct sim *sim = (struct sim *)exchange;
    struct message message = {
        .is_request = true,
        .tag = request->tag,
        .code = request->method,
        .silent = request->silent,
        .size = request->size,
    };

    snprintf(message.path, sizeof(message.path), "%s", request->path);
    transmit(sim, &sim->up, &message, request->body);
    return CN_OK;
}

static void close_sim(struct cn_exchange *exchange)
{
    struct sim *sim = (struct sim *)exchange;
    struct message *next;

    if (!sim)
        return;
    for (struct message *message = sim->first; message; message = next) {
        next = message->next;
        free(message);
    }
    free(sim);
}

// Has only the entries that transfers and requests use. It is always connected.
static const struct cn_exchange_ops ops = {
    .close = close_sim,
    .send = send_request,
};

cn_err cn_sim_open(const struct cn_sim_config *config, struct cn_exchange **exchange)
{
    struct sim *sim = calloc(1, sizeof(*sim));

    if (!sim)
        return CN_ENOMEM;
    sim->base.ops = &ops;
    sim->base.state = CN_EXCHANGE_UP;
    sim->base.sessions = 1;
    sim->base.body_max = config->body_max;
    sim->config = *config;
    sim->now_us = 1000000;
    cn_link_model_init(&sim->up, &config->up);
    cn_link_model_init(&sim->down, &config->down);
    *exchange = &sim->base;
    return CN_OK;
}
