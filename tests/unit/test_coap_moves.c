// Sessions whose datagrams come from new addresses, twice, forged, or not at all.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coap_world.h"

#define CAPTURED 40

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

static void connect_through(struct coap_world *world, struct middleman *middleman)
{
    for (int i = 0; i < 2000 && state_of(world->client) != CN_EXCHANGE_UP; i++) {
        pass(middleman);
        turn(world);
    }
    assert_int_equal(state_of(world->client), CN_EXCHANGE_UP);
}

// A client and a server with the middleman between them.
static void start_between(struct coap_world *world, struct middleman *middleman)
{
    char other[32];

    cn_log_set_level(CN_LOG_ERROR);
    free_address(world->address);
    assert_int_equal(open_server(world), CN_OK);
    middleman->server =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    middleman->server.sin_port = htons((uint16_t)atoi(strchr(world->address, ':') + 1));
    middleman->near = bind_to(world->address);
    middleman->far = bind_to(other);
    world->client = open_client(world, "board-1", '1');
    connect_through(world, middleman);
}

static void exchange_between(struct coap_world *world, struct middleman *middleman, int replies)
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
    struct coap_world world = {0};
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
    assert_int_equal(world.again, 7); // so that nobody waits for a time-out
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
    struct coap_world world = {0};
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
static void inject(struct coap_world *world, const struct middleman *middleman, int from)
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
    struct coap_world world = {0};
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
// While nothing gets through. A probe may be too large for the path, so its silence says nothing.
static void a_session_ends_in_silence_but_not_for_a_probe(void **state)
{
    struct cn_exchange_request ask = {.tag = 7, .method = CN_COAP_GET, .path = "r", .probe = true};
    struct coap_world world = {0};
    struct middleman middleman = {0};

    (void)state;
    start_between(&world, &middleman);
    request(&world, &ask);
    idle(&world, 700); // of a millisecond and more; silence_ms is 500
    assert_int_equal(state_of(world.client), CN_EXCHANGE_UP);
    ask.probe = false;
    request(&world, &ask);
    idle(&world, 700);
    assert_int_not_equal(state_of(world.client), CN_EXCHANGE_UP);
    close(middleman.near);
    close(middleman.far);
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_answer_goes_to_a_new_address_only_after_proof),
        cmocka_unit_test(a_session_does_not_move_to_who_forges_or_repeats_its_datagrams),
        cmocka_unit_test(captured_chunks_are_taken_neither_again_nor_as_another_boards),
        cmocka_unit_test(a_session_ends_in_silence_but_not_for_a_probe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
