#include "tests/support/sim_gateway.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/spool.h"
#include "tests/support/flaky_store.h"

#define GAPS 16

struct cn_sim_gateway {
    struct cn_flaky_store store;
    struct cn_spool *spool;
    struct cn_upload *upload;
    uint8_t id[CN_UPLOAD_ID_SIZE];
    bool decided;
    const uint8_t *data;
    size_t size;
    uint64_t repeats;
};

static void put_status(struct cn_sim_gateway *gateway, enum cn_coap_code code, uint32_t from,
                       uint32_t max, struct cn_coap_reply *reply)
{
    struct cn_upload_status status = {.decided = gateway->decided};

    memcpy(status.id, gateway->id, sizeof(status.id));
    if (!gateway->decided)
        cn_spool_describe(gateway->upload, from, max, &status);
    reply->code = code;
    if (cn_message_put_status(&status, reply->body, &reply->size))
        abort();
}

static void handle_post(void *context, const struct cn_coap_request *request,
                        struct cn_coap_reply *reply)
{
    struct cn_sim_gateway *gateway = context;
    struct cn_declare_request declared;

    if (*request->path || cn_message_get_declare(request->body, request->size, &declared))
        abort(); // the last chunk commits, so nobody has to
    if (!gateway->decided &&
        cn_spool_declare(gateway->spool, request->board, "group", &declared, 0, &gateway->upload))
        abort();
    if (!gateway->decided)
        memcpy(gateway->id, gateway->upload->id, sizeof(gateway->id));
    put_status(gateway, CN_COAP_CREATED, 0, CN_RANGE_MAX, reply);
}

static void decide(struct cn_sim_gateway *gateway)
{
    uint8_t *frame;

    if (cn_spool_read(gateway->spool, gateway->upload, &frame))
        abort(); // a wrong digest
    free(frame);
    cn_spool_drop(gateway->spool, gateway->upload);
    gateway->upload = NULL;
    gateway->decided = true;
}

static void handle_put(void *context, const struct cn_coap_request *request,
                       struct cn_coap_reply *reply)
{
    struct cn_sim_gateway *gateway = context;
    uint32_t received;

    if (gateway->decided) {
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such upload; declare it again");
        return;
    }
    received = gateway->upload->received;
    if (cn_spool_put(gateway->spool, gateway->upload,
                     (uint32_t)strtoul(request->path + 2 * CN_UPLOAD_ID_SIZE + 1, NULL, 10),
                     request->body, request->size, 0))
        abort();
    gateway->repeats +=
        (request->size + CN_SIM_CHUNK - 1) / CN_SIM_CHUNK - (gateway->upload->received - received);
    reply->code = CN_COAP_SILENT;
    if (!request->wants_reply)
        return;
    if (gateway->upload->received == gateway->upload->chunk_count)
        decide(gateway);
    put_status(gateway, CN_COAP_CHANGED, 0, GAPS, reply);
}

static void handle_get(void *context, const struct cn_coap_request *request,
                       struct cn_coap_reply *reply)
{
    struct cn_sim_gateway *gateway = context;
    char *end;
    size_t first = strtoul(request->path + 2 * CN_DIGEST_SIZE + 1, &end, 10) * CN_SIM_CHUNK;
    size_t wanted = strtoul(end + 1, NULL, 10) * CN_SIM_CHUNK;
    size_t rest = gateway->size - first;

    reply->code = CN_COAP_CONTENT;
    reply->size = wanted < rest ? wanted : rest;
    memcpy(reply->body, gateway->data + first, reply->size);
}

const struct cn_coap_route *cn_sim_gateway_routes(size_t *count)
{
    static const struct cn_coap_route routes[] = {
        {CN_COAP_PUT, "u", false, handle_put},
        {CN_COAP_POST, "u", false, handle_post},
        {CN_COAP_GET, "b", false, handle_get},
    };

    *count = sizeof(routes) / sizeof(routes[0]);
    return routes;
}

struct cn_sim_gateway *cn_sim_gateway_open(const uint8_t *data, size_t size)
{
    struct cn_sim_gateway *gateway = calloc(1, sizeof(*gateway));
    struct cn_spool_config config = {.frame_max = size, .chunk_size = CN_SIM_CHUNK};

    if (!gateway)
        abort();
    cn_flaky_store_init(&gateway->store);
    config.store = &gateway->store.store;
    gateway->data = data;
    gateway->size = size;
    if (cn_spool_open(&config, &gateway->spool))
        abort();
    return gateway;
}

void cn_sim_gateway_close(struct cn_sim_gateway *gateway)
{
    cn_spool_close(gateway->spool);
    cn_flaky_store_deinit(&gateway->store);
    free(gateway);
}

uint64_t cn_sim_gateway_repeats(const struct cn_sim_gateway *gateway)
{
    return gateway->repeats;
}
