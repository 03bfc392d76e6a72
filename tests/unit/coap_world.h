// coap_world.h - the CoAP server and client on the loopback interface, both in this thread; for
// tests.
#pragma once

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "tests/support/free_address.h"
#include "transport/coap/coap_client.h"
#include "transport/coap/coap_server.h"

#define WAIT_MS 3000
#define KEPT 8
#define MUCH 600

struct coap_world {
    char address[32];
    struct cn_coap_server *server;
    struct cn_exchange *client;
    bool revoked; // board-1 has no key
    int value;    // the number in the answer to GET r
    int requests, notifications;
    bool wanted_reply;
    uint32_t sessions_max, requests_per_s;
    uint64_t bulk_per_s;
    enum cn_link_transport transport;
    struct cn_exchange_reply replies[KEPT];
    char bodies[KEPT][64];
    int reply_count;
    uint64_t again; // tag of the request that has to be sent again
};

static inline void get_value(void *context, const struct cn_coap_request *request,
                             struct cn_coap_reply *reply)
{
    struct coap_world *world = context;

    world->requests++;
    world->notifications += request->notifies;
    reply->code = CN_COAP_CONTENT;
    reply->size = (size_t)sprintf((char *)reply->body, "%s %d", request->board, world->value);
}

static inline void put_value(void *context, const struct cn_coap_request *request,
                             struct cn_coap_reply *reply)
{
    struct coap_world *world = context;

    world->requests++;
    world->wanted_reply = request->wants_reply;
    if (strcmp(request->path, "a/7") != 0)
        cn_coap_reply_error(reply, CN_COAP_CONFLICT, "path %s, %zu bytes", request->path,
                            request->size);
    else
        reply->code = request->wants_reply ? CN_COAP_CHANGED : CN_COAP_SILENT;
}

static inline void get_much(void *context, const struct cn_coap_request *request,
                            struct cn_coap_reply *reply)
{
    (void)context;
    reply->code = CN_COAP_CONTENT;
    reply->size = request->reply_max > CN_COAP_DATAGRAM_MAX ? request->reply_max : MUCH;
    memset(reply->body, 'x', reply->size);
}

static const struct cn_coap_route routes[] = {
    {CN_COAP_GET, "much", false, get_much, true},
    {CN_COAP_GET, "r", true, get_value, false},
    {CN_COAP_PUT, "u", false, put_value, true},
};

static inline cn_err find_key(void *context, const char *board, uint8_t key[CN_KEY_SIZE])
{
    struct coap_world *world = context;

    if (world->revoked || strncmp(board, "board-", 6) != 0)
        return CN_EAUTH;
    memset(key, board[6], CN_KEY_SIZE);
    return CN_OK;
}

static inline bool keep_reply(void *context, const struct cn_exchange_reply *reply)
{
    struct coap_world *world = context;
    int slot = world->reply_count++ % KEPT;

    world->replies[slot] = *reply;
    snprintf(world->bodies[slot], sizeof(world->bodies[slot]), "%.*s", (int)reply->size,
             (const char *)reply->body);
    return true;
}

static inline void note_again(void *context, uint64_t tag)
{
    ((struct coap_world *)context)->again = tag;
}

static inline cn_err open_server(struct coap_world *world)
{
    const char *listen[] = {world->address};
    struct cn_coap_server_config config = {
        .listen = listen,
        .listen_count = 1,
        .routes = routes,
        .route_count = sizeof(routes) / sizeof(routes[0]),
        .context = world,
        .find_key = find_key,
        .handshakes_max = 10,
        .sessions_max = world->sessions_max ? world->sessions_max : 10,
        .requests_per_s = world->requests_per_s,
        .bulk_per_s = world->bulk_per_s,
    };

    return cn_coap_server_open(&config, &world->server);
}

static inline struct cn_exchange *open_client(struct coap_world *world, const char *board, int key)
{
    const char *addresses[] = {world->address};
    struct cn_coap_client_config config = {
        .board = board,
        .addresses = addresses,
        .address_count = 1,
        .silence_ms = 500,
        .handshake_ms = 1000,
        .transport = world->transport,
    };
    struct cn_exchange *client;

    memset(config.key, key, sizeof(config.key));
    assert_int_equal(cn_coap_client_open(&config, &client), CN_OK);
    client->sink = keep_reply;
    client->again = note_again;
    client->context = world;
    return client;
}

static inline void turn(struct coap_world *world)
{
    if (world->server)
        assert_int_equal(cn_coap_server_step(world->server, 1), CN_OK);
    else
        usleep(1000);
    if (world->client)
        world->client->ops->step(world->client);
}

static inline enum cn_exchange_state state_of(struct cn_exchange *client)
{
    return client->state;
}

static inline void wait_at_most(struct coap_world *world, enum cn_exchange_state state, uint64_t ms)
{
    uint64_t end = cn_platform_now_ms() + ms;

    while (state_of(world->client) != state && cn_platform_now_ms() < end)
        turn(world);
    assert_int_equal(state_of(world->client), state);
}

static inline void wait_for(struct coap_world *world, enum cn_exchange_state state)
{
    wait_at_most(world, state, WAIT_MS);
}

// Waits longer, because a client pauses for some seconds after failures.
static inline void wait_long_for(struct coap_world *world, enum cn_exchange_state state)
{
    wait_at_most(world, state, 10 * WAIT_MS);
}

static inline void wait_replies(struct coap_world *world, int count)
{
    uint64_t end = cn_platform_now_ms() + WAIT_MS;

    while (world->reply_count < count && cn_platform_now_ms() < end)
        turn(world);
    assert_int_equal(world->reply_count, count);
}

static inline void idle(struct coap_world *world, int turns)
{
    for (int i = 0; i < turns; i++)
        turn(world);
}

static inline void start(struct coap_world *world)
{
    cn_log_set_level(CN_LOG_ERROR);
    free_address(world->address);
    assert_int_equal(open_server(world), CN_OK);
    world->client = open_client(world, "board-1", '1');
}

static inline void stop(struct coap_world *world)
{
    if (world->client)
        world->client->ops->close(world->client);
    cn_coap_server_close(world->server);
}

static inline void request(struct coap_world *world, const struct cn_exchange_request *request)
{
    assert_int_equal(world->client->ops->send(world->client, request), CN_OK);
}

static inline int bind_to(char address[32])
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    free_address(address);
    name.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}
