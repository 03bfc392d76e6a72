// bench_link: one upload over real sockets, as the product does it.
//
//   bench_link serve HOST:PORT          the gateway: a spool in memory behind the product's server
//   bench_link send HOST:PORT udp|tcp BYTES [SECONDS]
//
// send registers, lets the path MTU be searched, and uploads. It prints the bytes, the seconds from
// the declaration to the verdict, and bits per second; the verdict comes after the digest was
// checked. For SECONDS, if given, it sends one frame of BYTES after the other.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "tests/support/sim_gateway.h"
#include "transport/board/board_link.h"
#include "transport/message/message.h"

#define ROUTES_MAX 16
#define WINDOW (1u << 18)
#define SEARCH_MS 1500
#define GIVE_UP_MS 900000

static const uint8_t key[CN_KEY_SIZE] = {7};
static struct cn_sim_gateway *gateway;
static size_t size_max = 64u << 20;

static cn_err find_key(void *context, const char *board, uint8_t found[CN_KEY_SIZE])
{
    (void)context, (void)board;
    memcpy(found, key, CN_KEY_SIZE);
    return CN_OK;
}

static void handle_register(void *context, const struct cn_coap_request *request,
                            struct cn_coap_reply *reply)
{
    struct cn_register_reply answer = {
        .protocol = CN_PROTOCOL_MAX,
        .update_format = CN_UPDATE_FORMAT_MAX,
        .graph_ops = CN_GRAPH_OPS_MAX,
        .chunk_size = CN_SIM_CHUNK,
        .window = WINDOW,
        .manifest = {.run = 1, .group = "group", .graph_size = 1},
    };

    (void)context, (void)request;
    snprintf(answer.manifest.job.name, sizeof(answer.manifest.job.name), "bench");
    snprintf(answer.manifest.job.data_set, sizeof(answer.manifest.job.data_set), "none");
    answer.manifest.job.batch = answer.manifest.job.accumulate = answer.manifest.job.local_steps =
        1;
    if (!cn_message_put_manifest(&answer, reply->body, &reply->size))
        reply->code = CN_COAP_CONTENT;
}

static void handle_probe(void *context, const struct cn_coap_request *request,
                         struct cn_coap_reply *reply)
{
    (void)context;
    reply->code = CN_COAP_CHANGED;
    reply->size = request->size;
    memset(reply->body, 0, reply->size);
}

static int serve(const char *address)
{
    struct cn_coap_route routes[ROUTES_MAX] = {{CN_COAP_POST, "reg", false, handle_register, false},
                                               {CN_COAP_POST, "p", false, handle_probe, false}};
    struct cn_coap_server_config config = {
        .listen = &address,
        .listen_count = 1,
        .routes = routes,
        .find_key = find_key,
        .handshakes_max = 16,
        .sessions_max = 16,
    };
    const struct cn_coap_route *more = cn_sim_gateway_routes(&config.route_count);
    struct cn_coap_server *server;

    memcpy(&routes[2], more, config.route_count * sizeof(*more));
    config.route_count += 2;
    gateway = cn_sim_gateway_open(NULL, size_max);
    config.context = gateway;
    if (cn_coap_server_open(&config, &server))
        return 1;
    printf("ready\n");
    fflush(stdout);
    while (!cn_coap_server_step(server, 20))
        continue;
    return 1;
}

static bool next_event(struct cn_link *link, struct cn_link_event *event, uint64_t wait_ms)
{
    uint64_t end_ms = cn_platform_now_ms() + wait_ms;

    while (cn_platform_now_ms() < end_ms) {
        struct pollfd descriptor = {.fd = link->ops->descriptor(link), .events = POLLIN};

        if (!link->ops->poll(link, event))
            return true;
        poll(&descriptor, 1, 50);
    }
    return false;
}

// Seconds from the declaration to the verdict, below 0 for none.
static double upload(struct cn_link *link, uint8_t *data, size_t size, uint32_t number)
{
    struct cn_link_upload frame = {
        .run = 1, .round = number, .frame = data, .size = size, .fresh = true};
    struct cn_link_event event;
    uint64_t begin_us;

    memcpy(data, &number, sizeof(number));
    cn_crypto_digest(data, size, frame.digest);
    begin_us = cn_platform_now_us();
    if (link->ops->upload(link, &frame))
        return -1;
    while (next_event(link, &event, GIVE_UP_MS)) {
        if (event.type == CN_LINK_RECEIPT)
            return 1e-6 * (double)(cn_platform_now_us() - begin_us);
    }
    return -1;
}

static int upload_for(struct cn_link *link, size_t size, double seconds)
{
    uint8_t *data = malloc(size);
    double elapsed = 0;
    size_t sent = 0;

    for (size_t i = 0; data && i < size; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 11);
    for (uint32_t number = 1; data && (!sent || elapsed < seconds); number++) {
        double one = upload(link, data, size, number);

        if (one < 0)
            break;
        elapsed += one;
        sent += size;
    }
    free(data);
    printf("%zu bytes %.3f s %.0f bit/s\n", sent, elapsed,
           elapsed > 0 ? 8 * (double)sent / elapsed : 0);
    return sent ? 0 : 1;
}

static int send_to(const char *address, const char *transport, size_t size, double seconds)
{
    struct cn_registration facts = {.cpu_count = 1, .members = {"bench"}, .member_count = 1};
    struct cn_link_config config = {
        .board = "bench",
        .addresses = {address},
        .address_count = 1,
        .transport = strcmp(transport, "tcp") == 0 ? CN_LINK_TCP : CN_LINK_UDP,
    };
    struct cn_link_event event;
    struct cn_link *link;
    int result = 1;

    memcpy(config.key, key, sizeof(key));
    if (size < 4 || size > size_max || cn_board_link.open(&config, &link))
        return 1;
    if (!link->ops->register_board(link, &facts) && next_event(link, &event, 60000) &&
        event.type == CN_LINK_REGISTERED) {
        next_event(link, &event, SEARCH_MS);
        result = upload_for(link, size, seconds);
    }
    link->ops->close(link);
    return result;
}

int main(int argc, char **argv)
{
    cn_log_set_level(CN_LOG_WARN);
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2]);
    if (argc >= 5 && strcmp(argv[1], "send") == 0)
        return send_to(argv[2], argv[3], strtoul(argv[4], NULL, 10),
                       argc > 5 ? strtod(argv[5], NULL) : 0);
    fprintf(stderr, "usage: bench_link serve HOST:PORT | send HOST:PORT udp|tcp BYTES [SECONDS]\n");
    return 2;
}
