// The CoAP server and client over DTLS on the loopback interface, both in this thread.
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "transport/coap_client.h"
#include "transport/coap_server.h"

#define WAIT_MS 3000
#define KEPT 8
#define MUCH 600
#define CAPTURED 40

struct world {
    char address[32];
    struct cn_coap_server *server;
    struct cn_exchange *client;
    bool revoked; // board-1 has no key
    int value;    // what GET r tells
    int requests;
    bool wanted_reply;
    uint32_t sessions_max, requests_per_s;
    enum cn_link_transport transport;
    struct cn_exchange_reply replies[KEPT];
    char bodies[KEPT][64];
    int reply_count;
};

static void get_value(void *context, const struct cn_coap_request *request,
                      struct cn_coap_reply *reply)
{
    struct world *world = context;

    world->requests++;
    reply->code = CN_COAP_CONTENT;
    reply->size = (size_t)sprintf((char *)reply->body, "%s %d", request->board, world->value);
}

static void put_value(void *context, const struct cn_coap_request *request,
                      struct cn_coap_reply *reply)
{
    struct world *world = context;

    world->requests++;
    world->wanted_reply = request->wants_reply;
    if (strcmp(request->path, "a/7") != 0)
        cn_coap_reply_error(reply, CN_COAP_CONFLICT, "path %s, %zu bytes", request->path,
                            request->size);
    else
        reply->code = request->wants_reply ? CN_COAP_CHANGED : CN_COAP_SILENT;
}

static void get_much(void *context, const struct cn_coap_request *request,
                     struct cn_coap_reply *reply)
{
    (void)context;
    reply->code = CN_COAP_CONTENT;
    reply->size = request->reply_max > CN_COAP_DATAGRAM_MAX ? request->reply_max : MUCH;
    memset(reply->body, 'x', reply->size);
}

static const struct cn_coap_route routes[] = {
    {CN_COAP_GET, "much", false, get_much, false},
    {CN_COAP_GET, "r", true, get_value, false},
    {CN_COAP_PUT, "u", false, put_value, true},
};

static cn_err find_key(void *context, const char *board, uint8_t key[CN_KEY_SIZE])
{
    struct world *world = context;

    if (world->revoked || strncmp(board, "board-", 6) != 0)
        return CN_EAUTH;
    memset(key, board[6], CN_KEY_SIZE);
    return CN_OK;
}

static bool keep_reply(void *context, const struct cn_exchange_reply *reply)
{
    struct world *world = context;
    int slot = world->reply_count++ % KEPT;

    world->replies[slot] = *reply;
    snprintf(world->bodies[slot], sizeof(world->bodies[slot]), "%.*s", (int)reply->size,
             (const char *)reply->body);
    return true;
}

static void free_port(char address[32])
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(name);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&name, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &size), 0);
    close(fd);
    snprintf(address, 32, "127.0.0.1:%u", ntohs(name.sin_port));
}

static cn_err open_server(struct world *world)
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
    };

    return cn_coap_server_open(&config, &world->server);
}

static struct cn_exchange *open_client(struct world *world, const char *board, int key)
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
    client->context = world;
    return client;
}

static void turn(struct world *world)
{
    if (world->server)
        assert_int_equal(cn_coap_server_step(world->server, 1), CN_OK);
    else
        usleep(1000);
    if (world->client)
        world->client->ops->step(world->client);
}

static enum cn_exchange_state state_of(struct cn_exchange *client)
{
    return client->state;
}

static void wait_for(struct world *world, enum cn_exchange_state state)
{
    uint64_t end = cn_platform_now_ms() + WAIT_MS;

    while (state_of(world->client) != state && cn_platform_now_ms() < end)
        turn(world);
    assert_int_equal(state_of(world->client), state);
}

static void wait_replies(struct world *world, int count)
{
    uint64_t end = cn_platform_now_ms() + WAIT_MS;

    while (world->reply_count < count && cn_platform_now_ms() < end)
        turn(world);
    assert_int_equal(world->reply_count, count);
}

static void idle(struct world *world, int turns)
{
    for (int i = 0; i < turns; i++)
        turn(world);
}

static void start(struct world *world)
{
    cn_log_set_level(CN_LOG_ERROR);
    free_port(world->address);
    assert_int_equal(open_server(world), CN_OK);
    world->client = open_client(world, "board-1", '1');
}

static void stop(struct world *world)
{
    if (world->client)
        world->client->ops->close(world->client);
    cn_coap_server_close(world->server);
}

static void request(struct world *world, const struct cn_exchange_request *request)
{
    assert_int_equal(world->client->ops->send(world->client, request), CN_OK);
}

static void a_request_reaches_its_handler_and_the_answer_carries_the_tag(void **state)
{
    struct world world = {.value = 5};
    struct cn_coap_server_stats stats;
    struct cn_exchange_stats client_stats;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.tag = 77, .method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    assert_int_equal(world.replies[0].tag, 77);
    assert_int_equal(world.replies[0].code, CN_COAP_CONTENT);
    assert_string_equal(world.bodies[0], "board-1 5");
    cn_coap_server_stats(world.server, &stats);
    client_stats = world.client->stats;
    assert_int_equal(stats.sessions, 1);
    assert_int_equal(stats.bytes_in, 4 + 8 + 2);
    assert_int_equal(stats.bytes_out, 4 + 8 + 1 + 9);
    assert_int_equal(client_stats.bytes_up, stats.bytes_in);
    assert_int_equal(client_stats.bytes_down, stats.bytes_out);
    stop(&world);
}

static void a_silent_request_is_answered_only_when_it_fails(void **state)
{
    struct world world = {0};
    struct cn_exchange_request put = {
        .tag = 1, .method = CN_COAP_PUT, .path = "u/a/7", .body = (const uint8_t *)"xy", .size = 2};

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    put.silent = true;
    request(&world, &put);
    idle(&world, 50);
    assert_int_equal(world.requests, 1);
    assert_int_equal(world.reply_count, 0);
    assert_false(world.wanted_reply);
    put.path = "u/b";
    request(&world, &put);
    wait_replies(&world, 1);
    assert_int_equal(world.replies[0].code, CN_COAP_CONFLICT);
    assert_string_equal(world.bodies[0], "path b, 2 bytes");
    put.path = "u/a/7";
    put.silent = false;
    request(&world, &put);
    wait_replies(&world, 2);
    assert_int_equal(world.replies[1].code, CN_COAP_CHANGED);
    assert_true(world.wanted_reply);
    stop(&world);
}

static void unknown_paths_and_wrong_methods_are_told_apart(void **state)
{
    struct world world = {0};

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "rr"});
    wait_replies(&world, 1);
    assert_int_equal(world.replies[0].code, CN_COAP_NOT_FOUND);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_DELETE, .path = "r"});
    wait_replies(&world, 2);
    assert_int_equal(world.replies[1].code, CN_COAP_METHOD_NOT_ALLOWED);
    request(&world,
            &(struct cn_exchange_request){.method = CN_COAP_GET, .path = ".well-known/core"});
    wait_replies(&world, 3);
    assert_int_equal(world.replies[2].code, CN_COAP_NOT_FOUND);
    stop(&world);
}

static void observers_are_told_of_changes(void **state)
{
    struct world world = {.value = 1};
    uint32_t sequence;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){
                        .tag = 9, .method = CN_COAP_GET, .path = "r", .observe = true});
    wait_replies(&world, 1);
    assert_true(world.replies[0].observed);
    sequence = world.replies[0].sequence;
    for (int i = 0; i < 6; i++) { // libcoap confirms every sixth
        world.value = 2 + i;
        cn_coap_server_notify(world.server, "r");
        wait_replies(&world, 2 + i);
    }
    assert_int_equal(world.replies[6].tag, 9);
    assert_true(world.replies[6].sequence > sequence);
    assert_string_equal(world.bodies[6], "board-1 7");
    stop(&world);
}

static void a_wrong_key_and_an_unknown_board_are_refused_alike(void **state)
{
    char first[160];
    const char *text;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world world = {0};

        start(&world);
        world.client->ops->close(world.client);
        world.client = open_client(&world, i ? "stranger" : "board-1", i ? '1' : 'x');
        wait_for(&world, CN_EXCHANGE_REFUSED);
        text = strchr(world.client->text, ' ');
        assert_non_null(text);
        if (i)
            assert_string_equal(text, first);
        snprintf(first, sizeof(first), "%s", text);
        idle(&world, 100); // no second handshake at once
        assert_int_equal(state_of(world.client), CN_EXCHANGE_REFUSED);
        assert_int_equal(world.requests, 0);
        stop(&world);
    }
}

static void a_dropped_board_is_cut_off_at_once(void **state)
{
    struct world world = {0};

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    world.revoked = true;
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    cn_coap_server_drop(world.server, "board-1");
    wait_for(&world, CN_EXCHANGE_REFUSED);
    assert_int_equal(world.requests, 1);
    stop(&world);
}

static void a_port_in_use_is_reported(void **state)
{
    struct world world = {0};
    struct world second = {0};

    (void)state;
    start(&world);
    cn_log_set_level((enum cn_log_level) - 1);
    snprintf(second.address, sizeof(second.address), "%s", world.address);
    assert_int_equal(open_server(&second), CN_EEXIST);
    stop(&world);
}

static void a_client_finds_a_restarted_server_again(void **state)
{
    struct world world = {0};

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    cn_coap_server_close(world.server);
    world.server = NULL;
    wait_for(&world, CN_EXCHANGE_DOWN);
    assert_int_equal(open_server(&world), CN_OK);
    wait_for(&world, CN_EXCHANGE_UP);
    assert_int_equal(world.client->sessions, 2);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 2);
    stop(&world);
}

static void the_newest_session_of_a_board_ends_the_older_one(void **state)
{
    struct world world = {0};
    struct cn_coap_server_stats stats;
    struct cn_exchange *first;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    first = world.client;
    world.client = open_client(&world, "board-1", '1');
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 2);
    idle(&world, 5);
    cn_coap_server_stats(world.server, &stats);
    assert_int_equal(stats.sessions, 1);
    first->ops->close(first);
    stop(&world);
}

// A middleman on the way, which passes datagrams on and keeps a copy of the last one of the client.
struct middleman {
    int near, far;
    struct sockaddr_in client, server;
    uint8_t last[2048];
    ssize_t size;
    size_t largest; // datagram of the server
    // With keep, a copy of what the client sent.
    bool keep;
    uint8_t kept[CAPTURED][2048];
    ssize_t kept_sizes[CAPTURED];
    int kept_count;
};

static void pass(struct middleman *middleman)
{
    uint8_t data[2048];
    socklen_t length = sizeof(middleman->client);
    ssize_t size;

    while ((size = recvfrom(middleman->near, middleman->last, sizeof(middleman->last), MSG_DONTWAIT,
                            (struct sockaddr *)&middleman->client, &length)) > 0) {
        middleman->size = size;
        if (middleman->keep && middleman->kept_count < CAPTURED) {
            memcpy(middleman->kept[middleman->kept_count], middleman->last, (size_t)size);
            middleman->kept_sizes[middleman->kept_count++] = size;
        }
        sendto(middleman->far, middleman->last, (size_t)size, 0,
               (struct sockaddr *)&middleman->server, sizeof(middleman->server));
    }
    while ((size = recv(middleman->far, data, sizeof(data), MSG_DONTWAIT)) > 0) {
        if ((size_t)size > middleman->largest)
            middleman->largest = (size_t)size;
        sendto(middleman->near, data, (size_t)size, 0, (struct sockaddr *)&middleman->client,
               sizeof(middleman->client));
    }
}

static int bind_to(char address[32])
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    free_port(address);
    name.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

static void connect_through(struct world *world, struct middleman *middleman)
{
    for (int i = 0; i < 2000 && state_of(world->client) != CN_EXCHANGE_UP; i++) {
        pass(middleman);
        turn(world);
    }
    assert_int_equal(state_of(world->client), CN_EXCHANGE_UP);
}

// A client and a server with the middleman between them.
static void start_between(struct world *world, struct middleman *middleman)
{
    char other[32];

    cn_log_set_level(CN_LOG_ERROR);
    free_port(world->address);
    assert_int_equal(open_server(world), CN_OK);
    middleman->server =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    middleman->server.sin_port = htons((uint16_t)atoi(strchr(world->address, ':') + 1));
    middleman->near = bind_to(world->address);
    middleman->far = bind_to(other);
    world->client = open_client(world, "board-1", '1');
    connect_through(world, middleman);
}

static void exchange_between(struct world *world, struct middleman *middleman, int replies)
{
    for (int i = 0; i < 100 && world->reply_count < replies; i++) {
        pass(middleman);
        turn(world);
    }
}

// RFC 9175, 2.3; the first answer only asks for the echo, and the client repeats its request.
static void a_large_answer_goes_to_a_new_address_only_after_proof(void **state)
{
    struct cn_exchange_request get = {.tag = 7, .method = CN_COAP_GET, .path = "much"};
    struct world world = {0};
    struct middleman middleman = {0};
    char other[32];

    (void)state;
    start_between(&world, &middleman);
    request(&world, &get);
    exchange_between(&world, &middleman, 1);
    assert_int_equal(world.reply_count, 1);
    close(middleman.far);
    middleman.far = bind_to(other);
    middleman.largest = 0;
    request(&world, &get);
    exchange_between(&world, &middleman, 2);
    assert_int_equal(world.reply_count, 1);
    assert_in_range(middleman.largest, 1, 3 * (size_t)middleman.size);
    request(&world, &get);
    exchange_between(&world, &middleman, 2);
    assert_int_equal(world.reply_count, 2);
    assert_int_equal(world.replies[1].code, CN_COAP_CONTENT);
    assert_int_equal(world.replies[1].size, MUCH);
    assert_true(middleman.largest > MUCH);
    close(middleman.near);
    close(middleman.far);
    stop(&world);
}

// The first repeats a record with a connection ID that is real, the others flip a bit of it.
static void a_session_does_not_move_to_who_forges_or_repeats_its_datagrams(void **state)
{
    struct world world = {0};
    struct middleman middleman = {0};
    struct cn_exchange_request get = {
        .tag = 7, .method = CN_COAP_GET, .path = "r", .observe = true};
    char other[32], answer[2048];
    int stranger = bind_to(other);

    (void)state;
    start_between(&world, &middleman);
    request(&world, &get);
    for (int attack = 0; attack < 3; attack++) {
        for (int i = 0; i < 500 && world.reply_count == attack; i++) {
            pass(&middleman);
            turn(&world);
        }
        assert_int_equal(world.reply_count, attack + 1);
        assert_int_equal(middleman.last[0], 25); // a record with a connection ID
        if (attack)
            middleman.last[middleman.size - 1] ^= 1;
        sendto(stranger, middleman.last, (size_t)middleman.size, 0,
               (struct sockaddr *)&middleman.server, sizeof(middleman.server));
        idle(&world, 20);
        world.value++;
        cn_coap_server_notify(world.server, "r"); // goes to where the session is
        idle(&world, 5);
        assert_true(recv(stranger, answer, sizeof(answer), MSG_DONTWAIT) < 0);
    }
    close(stranger);
    close(middleman.near);
    close(middleman.far);
    stop(&world);
}

// All that was captured, in its order and backwards, from the socket.
static void inject(struct world *world, const struct middleman *middleman, int from)
{
    for (int i = 0; i < 2 * middleman->kept_count; i++) {
        int one = i < middleman->kept_count ? i : 2 * middleman->kept_count - 1 - i;

        sendto(from, middleman->kept[one], (size_t)middleman->kept_sizes[one], 0,
               (const struct sockaddr *)&middleman->server, sizeof(middleman->server));
        turn(world);
    }
    idle(world, 20);
}

// From the board's own address, from that of another board's session and from a stranger's; in the
// session in which it was captured and in the next.
static void captured_chunks_are_taken_neither_again_nor_as_another_boards(void **state)
{
    struct cn_exchange_request put = {
        .method = CN_COAP_PUT, .path = "u/a/7", .body = (const uint8_t *)"xy", .size = 2};
    static struct middleman first, second;
    struct world world = {0};
    struct cn_exchange *clients[2];
    char first_address[32], other[32];
    int stranger;

    (void)state;
    start_between(&world, &first);
    snprintf(first_address, sizeof(first_address), "%s", world.address);
    second.server = first.server;
    second.near = bind_to(world.address);
    second.far = bind_to(other);
    stranger = bind_to(other);
    clients[0] = world.client;
    world.client = clients[1] = open_client(&world, "board-2", '2');
    connect_through(&world, &second);
    request(&world, &put);
    exchange_between(&world, &second, 1);
    world.client = clients[0];
    first.keep = true;
    for (int i = 0; i < 20; i++) {
        request(&world, &put);
        exchange_between(&world, &first, i + 2);
    }
    first.keep = false;
    assert_int_equal(world.requests, 21);
    assert_int_equal(first.kept_count, 20);
    inject(&world, &first, first.far);
    inject(&world, &first, second.far);
    inject(&world, &first, stranger);
    clients[0]->ops->close(clients[0]);
    snprintf(world.address, sizeof(world.address), "%s", first_address);
    world.client = clients[0] = open_client(&world, "board-1", '1');
    connect_through(&world, &first);
    inject(&world, &first, first.far);
    assert_int_equal(world.requests, 21);
    for (int i = 0; i < 2; i++) { // and both sessions are as they were
        world.client = clients[i];
        request(&world, &put);
        exchange_between(&world, i ? &second : &first, 22 + i);
        assert_int_equal(world.requests, 22 + i);
    }
    clients[0]->ops->close(clients[0]);
    close(stranger);
    close(first.near), close(first.far), close(second.near), close(second.far);
    stop(&world);
}

static void one_board_too_many_is_told_to_come_back(void **state)
{
    struct cn_exchange_request get = {.method = CN_COAP_GET, .path = "r"};
    struct world world = {.sessions_max = 1};
    struct cn_exchange *first;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &get);
    wait_replies(&world, 1);
    first = world.client;
    world.client = open_client(&world, "board-2", '2');
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &get);
    wait_replies(&world, 2);
    assert_int_equal(world.replies[1].code, CN_COAP_UNAVAILABLE);
    assert_int_equal(world.replies[1].max_age_s, 30);
    assert_int_equal(world.requests, 1);
    cn_coap_server_drop(world.server, "board-1");
    idle(&world, 5);
    request(&world, &get);
    wait_replies(&world, 3);
    assert_int_equal(world.replies[2].code, CN_COAP_CONTENT);
    first->ops->close(first);
    stop(&world);
}

static void a_board_that_asks_too_often_is_told_so_and_others_are_served(void **state)
{
    struct cn_exchange_request get = {.method = CN_COAP_GET, .path = "r"};
    struct world world = {.requests_per_s = 5};
    struct cn_exchange *first;

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP);
    for (int i = 1; i <= 30; i++) {
        request(&world, &get);
        wait_replies(&world, i);
    }
    assert_in_range(world.requests, 20, 25); // four seconds' worth and what comes meanwhile
    assert_int_equal(world.replies[29 % KEPT].code, CN_COAP_TOO_MANY);
    assert_int_equal(world.replies[29 % KEPT].max_age_s, 2);
    first = world.client;
    world.client = open_client(&world, "board-2", '2');
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &get);
    wait_replies(&world, 31);
    assert_int_equal(world.replies[30 % KEPT].code, CN_COAP_CONTENT);
    first->ops->close(first);
    stop(&world);
}

// The first datagram of a client, as it goes to an address where nobody answers.
static ssize_t take_hello(uint8_t hello[2048])
{
    struct world world = {0};
    int fd = bind_to(world.address);
    ssize_t size = -1;

    world.client = open_client(&world, "board-1", '1');
    for (int i = 0; i < 1000 && size < 0; i++) {
        turn(&world);
        size = recv(fd, hello, 2048, MSG_DONTWAIT);
    }
    stop(&world);
    close(fd);
    return size;
}

// More than the half-open handshakes that there may be; each costs a small answer and nothing else.
static void a_flood_of_hellos_without_a_cookie_keeps_nobody_out(void **state)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct world world = {0};
    uint8_t hello[2048], answer[2048];
    ssize_t size = take_hello(hello);
    uint64_t end;

    (void)state;
    assert_true(size > 60);
    assert_int_equal(hello[13], 1); // ClientHello
    start(&world);
    world.client->ops->close(world.client);
    world.client = NULL;
    to.sin_port = htons((uint16_t)atoi(strchr(world.address, ':') + 1));
    for (int i = 0; i < 300; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        ssize_t got = -1;

        sendto(fd, hello, (size_t)size, 0, (struct sockaddr *)&to, sizeof(to));
        for (int tries = 0; tries < 100 && got < 0; tries++) {
            turn(&world);
            got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
        }
        assert_in_range(got, 28, size);  // no amplification
        assert_int_equal(answer[13], 3); // HelloVerifyRequest
        close(fd);
    }
    world.client = open_client(&world, "board-1", '1');
    end = cn_platform_now_ms() + WAIT_MS;
    while (state_of(world.client) != CN_EXCHANGE_UP && cn_platform_now_ms() < end)
        turn(&world);
    assert_int_equal(state_of(world.client), CN_EXCHANGE_UP);
    stop(&world);
}

static void over_tcp_messages_are_large_and_forward_secret(void **state)
{
    struct world world = {.transport = CN_LINK_TCP};

    (void)state;
    start(&world);
    wait_for(&world, CN_EXCHANGE_UP); // the client checks the cipher suite
    assert_true(world.client->stream);
    assert_int_equal(world.client->body_max, CN_COAP_BODY_MAX);
    request(&world, &(struct cn_exchange_request){.tag = 3, .method = CN_COAP_GET, .path = "much"});
    wait_replies(&world, 1);
    assert_int_equal(world.replies[0].code, CN_COAP_CONTENT);
    assert_int_equal(world.replies[0].size, CN_COAP_BODY_MAX);
    stop(&world);
}

static void over_tcp_a_wrong_key_is_refused(void **state)
{
    struct world world = {.transport = CN_LINK_TCP};

    (void)state;
    start(&world);
    world.client->ops->close(world.client);
    world.client = open_client(&world, "board-1", 'x');
    wait_for(&world, CN_EXCHANGE_REFUSED);
    assert_int_equal(world.requests, 0);
    stop(&world);
}

// Nobody hears what is sent to 127.0.0.2 over UDP; the server listens there over TCP.
static void where_udp_does_not_get_through_tcp_is_used(void **state)
{
    struct sockaddr_in deaf = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002)};
    struct world world = {.transport = CN_LINK_UDP};
    int one = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);
    char port[8];

    (void)state;
    cn_log_set_level(CN_LOG_ERROR);
    free_port(world.address);
    snprintf(port, sizeof(port), "%s", strchr(world.address, ':') + 1);
    snprintf(world.address, sizeof(world.address), "0.0.0.0:%s", port);
    assert_int_equal(open_server(&world), CN_OK);
    deaf.sin_port = htons((uint16_t)atoi(port));
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&deaf, sizeof(deaf)), 0);
    snprintf(world.address, sizeof(world.address), "127.0.0.2:%s", port);
    world.client = open_client(&world, "board-1", '1');
    wait_for(&world, CN_EXCHANGE_DOWN);
    world.client->ops->close(world.client);
    world.transport = CN_LINK_AUTO;
    world.client = open_client(&world, "board-1", '1');
    wait_for(&world, CN_EXCHANGE_UP);
    assert_true(world.client->stream);
    close(fd);
    stop(&world);
}

static void ipv4_and_ipv6_are_served_at_the_same_port(void **state)
{
    struct world world = {.transport = CN_LINK_TCP};
    char v4[32], v6[32], text[32];
    const char *listen[] = {v4, v6};
    struct cn_coap_server_config config = {
        .listen = listen,
        .listen_count = 2,
        .routes = routes,
        .route_count = sizeof(routes) / sizeof(routes[0]),
        .context = &world,
        .find_key = find_key,
        .handshakes_max = 10,
        .sessions_max = 10,
    };
    int port, probe = socket(AF_INET6, SOCK_DGRAM, 0);

    (void)state;
    if (probe < 0)
        skip(); // a machine without IPv6
    close(probe);
    cn_log_set_level(CN_LOG_ERROR);
    free_port(text);
    port = atoi(strchr(text, ':') + 1);
    snprintf(v4, sizeof(v4), "0.0.0.0:%d", port);
    snprintf(v6, sizeof(v6), "[::]:%d", port);
    assert_int_equal(cn_coap_server_open(&config, &world.server), CN_OK);
    for (int i = 0; i < 2; i++) {
        snprintf(world.address, sizeof(world.address), i ? "[::1]:%d" : "127.0.0.1:%d", port);
        world.client = open_client(&world, i ? "board-2" : "board-1", i ? '2' : '1');
        wait_for(&world, CN_EXCHANGE_UP);
        if (!i)
            world.client->ops->close(world.client);
    }
    stop(&world);
}

static void connections_that_say_nothing_make_room(void **state)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct world world = {.transport = CN_LINK_TCP};
    int idle_fds[30], open = 0;
    char byte;

    (void)state;
    start(&world);
    world.client->ops->close(world.client);
    to.sin_port = htons((uint16_t)atoi(strchr(world.address, ':') + 1));
    world.client = NULL;
    for (int i = 0; i < 30; i++) {
        idle_fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(idle_fds[i], (struct sockaddr *)&to, sizeof(to)), 0);
        turn(&world);
    }
    world.client = open_client(&world, "board-1", '1');
    wait_for(&world, CN_EXCHANGE_UP);
    request(&world, &(struct cn_exchange_request){.method = CN_COAP_GET, .path = "r"});
    wait_replies(&world, 1);
    for (int i = 0; i < 30; i++) {
        open += recv(idle_fds[i], &byte, 1, MSG_DONTWAIT) < 0;
        close(idle_fds[i]);
    }
    assert_in_range(open, 1, 10);
    stop(&world);
}

static void names_are_looked_up_and_a_second_address_is_tried(void **state)
{
    struct world world = {0};
    const char *addresses[2];
    char dead[32], name[32];
    struct cn_coap_client_config config = {
        .board = "board-1", .addresses = addresses, .address_count = 2};

    (void)state;
    start(&world);
    world.client->ops->close(world.client);
    free_port(dead);
    snprintf(name, sizeof(name), "localhost:%s", strchr(world.address, ':') + 1);
    addresses[0] = dead;
    addresses[1] = name;
    memset(config.key, '1', sizeof(config.key));
    assert_int_equal(cn_coap_client_open(&config, &world.client), CN_OK);
    wait_for(&world, CN_EXCHANGE_UP);
    addresses[1] = "no port";
    assert_int_equal(cn_coap_client_open(&config, &world.client), CN_EINVAL);
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_reaches_its_handler_and_the_answer_carries_the_tag),
        cmocka_unit_test(a_silent_request_is_answered_only_when_it_fails),
        cmocka_unit_test(unknown_paths_and_wrong_methods_are_told_apart),
        cmocka_unit_test(observers_are_told_of_changes),
        cmocka_unit_test(a_wrong_key_and_an_unknown_board_are_refused_alike),
        cmocka_unit_test(a_dropped_board_is_cut_off_at_once),
        cmocka_unit_test(a_port_in_use_is_reported),
        cmocka_unit_test(a_client_finds_a_restarted_server_again),
        cmocka_unit_test(the_newest_session_of_a_board_ends_the_older_one),
        cmocka_unit_test(a_large_answer_goes_to_a_new_address_only_after_proof),
        cmocka_unit_test(a_session_does_not_move_to_who_forges_or_repeats_its_datagrams),
        cmocka_unit_test(captured_chunks_are_taken_neither_again_nor_as_another_boards),
        cmocka_unit_test(one_board_too_many_is_told_to_come_back),
        cmocka_unit_test(a_board_that_asks_too_often_is_told_so_and_others_are_served),
        cmocka_unit_test(a_flood_of_hellos_without_a_cookie_keeps_nobody_out),
        cmocka_unit_test(over_tcp_messages_are_large_and_forward_secret),
        cmocka_unit_test(over_tcp_a_wrong_key_is_refused),
        cmocka_unit_test(where_udp_does_not_get_through_tcp_is_used),
        cmocka_unit_test(ipv4_and_ipv6_are_served_at_the_same_port),
        cmocka_unit_test(connections_that_say_nothing_make_room),
        cmocka_unit_test(names_are_looked_up_and_a_second_address_is_tried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
