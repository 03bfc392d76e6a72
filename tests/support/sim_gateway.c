#include "tests/support/sim_gateway.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/store/spool.h"
#include "tests/support/flaky_store.h"

#define GAPS 16

struct cn_sim_gateway {
    struct cn_flaky_store store;
    struct cn_spool *spool;
    struct cn_spooled *upload;
    uint8_t id[CN_UPLOAD_ID_SIZE];
    bool decided;
    uint32_t round; // round of the last declaration
    bool down;
    bool
        renewed; // either end was started anew: what is there is known from the next declaration on
    uint64_t now_ms, messages;
    uint64_t later_ms; // declarations before this time are answered with "later"
    uint8_t *known;    // chunks that are known, as in the spool's bitmap
    uint64_t known_count, known_repeats;
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

static void note_known(struct cn_sim_gateway *gateway)
{
    const struct cn_spooled *upload = gateway->upload;

    gateway->renewed = false;
    gateway->known_count = upload->received;
    memcpy(gateway->known, upload->bitmap, upload->chunk_count / 8 + 1);
}

static void decide(struct cn_sim_gateway *gateway)
{
    uint8_t *frame;

    if (cn_spool_read(gateway->spool, gateway->upload, &frame))
        abort(); // the digest is wrong
    free(frame);
    cn_spool_drop(gateway->spool, gateway->upload);
    gateway->upload = NULL;
    gateway->decided = true;
}

// Happens seldom: the answer to the last chunk, which also commits the update, was lost.
static void commit(struct cn_sim_gateway *gateway, struct cn_coap_reply *reply)
{
    if (gateway->upload && gateway->upload->received == gateway->upload->chunk_count)
        decide(gateway);
    if (gateway->upload || gateway->decided)
        put_status(gateway, gateway->decided ? CN_COAP_CHANGED : CN_COAP_INCOMPLETE, 0,
                   CN_RANGE_MAX, reply);
    else
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such upload; declare it again");
}

static void handle_post(void *context, const struct cn_coap_request *request,
                        struct cn_coap_reply *reply)
{
    struct cn_sim_gateway *gateway = context;
    struct cn_declare_request declared;

    reply->code = CN_COAP_SILENT;
    if (gateway->down)
        return;
    if (*request->path) {
        commit(gateway, reply);
        return;
    }
    if (cn_message_get_declare(request->body, request->size, &declared))
        abort();
    if (gateway->now_ms < gateway->later_ms) {
        cn_coap_reply_error(reply, CN_COAP_UNAVAILABLE, "later");
        reply->max_age_s = 1;
        return;
    }
    if (declared.round != gateway->round)
        gateway->decided = false;
    gateway->round = declared.round;
    if (!gateway->decided && cn_spool_declare(gateway->spool, request->board, "group", &declared,
                                              gateway->now_ms, &gateway->upload))
        abort();
    if (!gateway->decided) {
        memcpy(gateway->id, gateway->upload->id, sizeof(gateway->id));
        if (gateway->renewed)
            note_known(gateway);
    }
    put_status(gateway, CN_COAP_CREATED, 0, CN_RANGE_MAX, reply);
}

static void count_repeats(struct cn_sim_gateway *gateway, uint32_t first, size_t size,
                          uint32_t fresh)
{
    uint32_t count = (uint32_t)((size + CN_SIM_CHUNK - 1) / CN_SIM_CHUNK);

    gateway->repeats += count - fresh;
    for (uint32_t i = first; i < first + count; i++)
        gateway->known_repeats += gateway->known[i / 8] >> (i % 8) & 1;
}

static void handle_put(void *context, const struct cn_coap_request *request,
                       struct cn_coap_reply *reply)
{
    struct cn_sim_gateway *gateway = context;
    uint32_t first = (uint32_t)strtoul(request->path + 2 * CN_UPLOAD_ID_SIZE + 1, NULL, 10);
    uint32_t received;

    reply->code = CN_COAP_SILENT;
    if (gateway->down)
        return;
    if (!gateway->upload) {
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such upload; declare it again");
        return;
    }
    received = gateway->upload->received;
    if (cn_spool_put(gateway->spool, gateway->upload, first, request->body, request->size,
                     gateway->now_ms))
        abort();
    gateway->messages++;
    count_repeats(gateway, first, request->size, gateway->upload->received - received);
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
        {CN_COAP_PUT, "u", false, handle_put, true},
        {CN_COAP_POST, "u", false, handle_post, false},
        {CN_COAP_GET, "b", false, handle_get, true},
    };

    *count = sizeof(routes) / sizeof(routes[0]);
    return routes;
}

static void open_spool(struct cn_sim_gateway *gateway)
{
    const struct cn_spool_config config = {
        .store = &gateway->store.store,
        .frame_max = gateway->size,
        .chunk_size = CN_SIM_CHUNK,
        .expiry_ms = 3600000,
    };

    if (cn_spool_open(&config, &gateway->spool))
        abort();
}

struct cn_sim_gateway *cn_sim_gateway_open(const uint8_t *data, size_t size)
{
    struct cn_sim_gateway *gateway = calloc(1, sizeof(*gateway));

    if (!gateway)
        abort();
    cn_flaky_store_init(&gateway->store);
    gateway->data = data;
    gateway->size = size;
    gateway->known = calloc(size / CN_SIM_CHUNK / 8 + 2, 1);
    if (!gateway->known)
        abort();
    open_spool(gateway);
    return gateway;
}

void cn_sim_gateway_close(struct cn_sim_gateway *gateway)
{
    cn_spool_close(gateway->spool);
    cn_flaky_store_deinit(&gateway->store);
    free(gateway->known);
    free(gateway);
}

void cn_sim_gateway_tick(struct cn_sim_gateway *gateway, uint64_t now_ms)
{
    gateway->now_ms = now_ms;
    if (!gateway->down)
        cn_spool_expire(gateway->spool, 1, 1, now_ms);
}

void cn_sim_gateway_kill(struct cn_sim_gateway *gateway)
{
    cn_flaky_store_fail(&gateway->store, 1, true, CN_EIO); // closing must not save
    cn_spool_close(gateway->spool);
    cn_flaky_store_fail(&gateway->store, 0, false, CN_OK);
    gateway->spool = NULL;
    gateway->upload = NULL;
    gateway->down = true;
}

void cn_sim_gateway_start(struct cn_sim_gateway *gateway)
{
    gateway->down = false;
    open_spool(gateway);
}

void cn_sim_gateway_expect_renewal(struct cn_sim_gateway *gateway)
{
    gateway->renewed = true;
    if (gateway->upload)
        note_known(gateway);
}

void cn_sim_gateway_postpone(struct cn_sim_gateway *gateway, uint64_t until_ms)
{
    gateway->later_ms = until_ms;
}

uint64_t cn_sim_gateway_messages(const struct cn_sim_gateway *gateway)
{
    return gateway->messages;
}

uint64_t cn_sim_gateway_known(const struct cn_sim_gateway *gateway, uint64_t *repeats)
{
    *repeats = gateway->known_repeats;
    return gateway->known_count;
}

uint64_t cn_sim_gateway_repeats(const struct cn_sim_gateway *gateway)
{
    return gateway->repeats;
}
