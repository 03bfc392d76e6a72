#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/group/membership_wire.h"
#include "runtime/port/platform.h"
#include "transport/peer/peer_coap.h"

#define LINKS 3
#define STRANGERS 20

struct fixture {
    struct cn_member members[LINKS][LINKS]; // the list of each
    struct cn_peer_link *links[LINKS];
};

static void open_link(struct fixture *fixture, uint32_t self)
{
    assert_int_equal(cn_peer_coap_open(fixture->members[self][self].address, fixture->members[self],
                                       LINKS, self, &fixture->links[self]),
                     CN_OK);
}

static void close_link(struct fixture *fixture, uint32_t self)
{
    if (fixture->links[self])
        fixture->links[self]->ops->close(fixture->links[self]);
    fixture->links[self] = NULL;
}

static void set_up(struct fixture *fixture)
{
    unsigned pid = (unsigned)getpid();

    memset(fixture, 0, sizeof(*fixture));
    for (uint32_t i = 0; i < LINKS; i++) {
        for (uint32_t k = 0; k < LINKS; k++) {
            struct cn_member *member = &fixture->members[i][k];

            snprintf(member->name, sizeof(member->name), "board-%u", k);
            snprintf(member->address, sizeof(member->address), "127.%u.%u.%u:7500",
                     20 + (pid >> 14) % 60, (pid >> 6) & 255, 1 + (pid & 63) * 3 + k);
            if (i != k)
                memset(member->pair_key, (int)(1 + i + k), CN_KEY_SIZE);
        }
    }
}

static void open_all(struct fixture *fixture)
{
    for (uint32_t i = 0; i < LINKS; i++)
        open_link(fixture, i);
}

static void tear_down(struct fixture *fixture)
{
    for (uint32_t i = 0; i < LINKS; i++)
        close_link(fixture, i);
}

// Drives all links until `to` has a message. Messages at the others are dropped.
static cn_err await_message(struct fixture *fixture, uint32_t to, uint32_t timeout_ms,
                            uint32_t *from, uint8_t message[CN_PEER_MESSAGE_MAX], size_t *size)
{
    uint64_t end_ms = cn_platform_now_ms() + timeout_ms;

    while (cn_platform_now_ms() < end_ms) {
        for (uint32_t i = 0; i < LINKS; i++) {
            uint8_t other[CN_PEER_MESSAGE_MAX];
            uint32_t member;
            size_t other_size;

            if (!fixture->links[i])
                continue;
            if (i == to &&
                fixture->links[i]->ops->poll(fixture->links[i], from, message, size) == CN_OK)
                return CN_OK;
            if (i != to)
                (void)!fixture->links[i]->ops->poll(fixture->links[i], &member, other, &other_size);
        }
        usleep(1000);
    }
    return CN_ETIMEOUT;
}

// A message begins with its type.
static cn_err send_text(struct fixture *fixture, uint32_t from, uint32_t to, const char *text)
{
    struct cn_peer_link *link = fixture->links[from];
    uint8_t message[CN_PEER_MESSAGE_MAX] = {CN_MEMBERSHIP_JOIN};

    strcpy((char *)message + 1, text);
    return link->ops->send(link, to, message, strlen(text) + 2);
}

// Says it until it is heard: what finds no session is lost, as a datagram may be.
static cn_err deliver(struct fixture *fixture, uint32_t from, uint32_t to, const char *text,
                      uint32_t timeout_ms)
{
    uint64_t end_ms = cn_platform_now_ms() + timeout_ms;
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t sender;
    size_t size;

    while (cn_platform_now_ms() < end_ms) {
        assert_int_equal(send_text(fixture, from, to, text), CN_OK);
        if (await_message(fixture, to, 50, &sender, message, &size) == CN_OK && sender == from &&
            size == strlen(text) + 2 && strcmp((char *)message + 1, text) == 0)
            return CN_OK;
    }
    return CN_ETIMEOUT;
}

static void assert_arrives(struct fixture *fixture, uint32_t from, uint32_t to, const char *text)
{
    assert_int_equal(deliver(fixture, from, to, text, 10000), CN_OK);
}

static void drain(struct fixture *fixture, uint32_t to)
{
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t from;
    size_t size;

    while (await_message(fixture, to, 100, &from, message, &size) == CN_OK)
        continue;
}

static void a_message_arrives_whole_and_names_its_sender(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    for (uint32_t from = 0; from < LINKS; from++)
        for (uint32_t to = 0; to < LINKS; to++)
            if (from != to)
                assert_arrives(&fixture, from, to, "hello");
    tear_down(&fixture);
}

static void messages_of_the_largest_size_arrive(void **state)
{
    struct fixture fixture;
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t from;
    size_t size;

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    assert_arrives(&fixture, 0, 1, "connect");
    drain(&fixture, 1);
    for (int i = 0; i < 8; i++) {
        memset(message, i, sizeof(message));
        message[0] = CN_MEMBERSHIP_COMMIT;
        assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], 1, message, sizeof(message)),
                         CN_OK);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(await_message(&fixture, 1, 5000, &from, message, &size), CN_OK);
        assert_int_equal(size, CN_PEER_MESSAGE_MAX);
        assert_int_equal(message[1], i);
        assert_int_equal(message[CN_PEER_MESSAGE_MAX - 1], i);
    }
    tear_down(&fixture);
}

static void impossible_sends_are_refused(void **state)
{
    struct fixture fixture;
    uint8_t message[CN_PEER_MESSAGE_MAX + 1] = {CN_MEMBERSHIP_JOIN};

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], 1, message, sizeof(message)),
                     CN_ERANGE);
    assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], 1, message, 0), CN_ERANGE);
    assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], 0, message, 1), CN_ERANGE);
    assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], LINKS, message, 1), CN_ERANGE);
    message[0] = 0; // no type
    assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], 1, message, 1), CN_EINVAL);
    tear_down(&fixture);
}

static void a_restarted_member_is_reached_again(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    for (int round = 0; round < 3; round++) {
        assert_arrives(&fixture, 0, 1, "before");
        assert_arrives(&fixture, 1, 0, "back");
        close_link(&fixture, 1);
        usleep(20000);
        open_link(&fixture, 1);
        assert_arrives(&fixture, 0, 1, "again");
    }
    tear_down(&fixture);
}

static void a_member_that_comes_late_is_reached_soon(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture);
    open_link(&fixture, 0);
    assert_int_equal(send_text(&fixture, 0, 1, "nobody there"), CN_OK);
    drain(&fixture, 0);
    open_link(&fixture, 1);
    assert_arrives(&fixture, 0, 1, "hello");
    tear_down(&fixture);
}

static void a_member_with_a_wrong_key_is_not_heard(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture);
    fixture.members[1][0].pair_key[0] ^= 1;
    open_all(&fixture);
    assert_int_equal(deliver(&fixture, 1, 0, "forged", 1000), CN_ETIMEOUT);
    assert_int_equal(deliver(&fixture, 0, 1, "unheard", 1000), CN_ETIMEOUT);
    assert_arrives(&fixture, 2, 0, "true");
    tear_down(&fixture);
}

static void a_member_without_a_key_is_not_heard(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture);
    memset(fixture.members[0][1].pair_key, 0, CN_KEY_SIZE);
    memset(fixture.members[1][0].pair_key, 0, CN_KEY_SIZE);
    open_all(&fixture);
    assert_int_equal(deliver(&fixture, 1, 0, "nothing", 1000), CN_ETIMEOUT);
    assert_arrives(&fixture, 2, 0, "true");
    tear_down(&fixture);
}

// Another stolen board: it knows the pair (2, 1) and says that it is board-0.
static void the_key_of_another_pair_is_refused(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture);
    memcpy(fixture.members[0][1].pair_key, fixture.members[2][1].pair_key, CN_KEY_SIZE);
    open_all(&fixture);
    assert_int_equal(deliver(&fixture, 0, 1, "forged", 1000), CN_ETIMEOUT);
    assert_arrives(&fixture, 2, 1, "true");
    tear_down(&fixture);
}

static void strangers_do_not_keep_members_out(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7500)};
    struct fixture fixture;
    char host[128];
    uint8_t noise[64];

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    snprintf(host, sizeof(host), "%s", fixture.members[1][1].address);
    *strchr(host, ':') = 0;
    inet_pton(AF_INET, host, &address.sin_addr);
    for (int i = 0; i < STRANGERS; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);

        for (size_t k = 0; k < sizeof(noise); k++)
            noise[k] = (uint8_t)(i % 2 ? 0x16 + k : 0x40); // a handshake of sorts; plain CoAP
        assert_true(sendto(fd, noise, sizeof(noise), 0, (struct sockaddr *)&address,
                           sizeof(address)) == sizeof(noise));
        close(fd);
    }
    assert_arrives(&fixture, 0, 1, "hello");
    tear_down(&fixture);
}

static void the_descriptor_wakes_for_a_message(void **state)
{
    struct fixture fixture;
    struct pollfd ready;

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    assert_arrives(&fixture, 0, 1, "connect");
    drain(&fixture, 1);
    ready = (struct pollfd){.fd = fixture.links[1]->ops->descriptor(fixture.links[1]),
                            .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 0), 0);
    assert_int_equal(send_text(&fixture, 0, 1, "wake"), CN_OK);
    assert_int_equal(poll(&ready, 1, 2000), 1);
    tear_down(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_arrives_whole_and_names_its_sender),
        cmocka_unit_test(messages_of_the_largest_size_arrive),
        cmocka_unit_test(impossible_sends_are_refused),
        cmocka_unit_test(a_restarted_member_is_reached_again),
        cmocka_unit_test(a_member_that_comes_late_is_reached_soon),
        cmocka_unit_test(a_member_with_a_wrong_key_is_not_heard),
        cmocka_unit_test(a_member_without_a_key_is_not_heard),
        cmocka_unit_test(the_key_of_another_pair_is_refused),
        cmocka_unit_test(strangers_do_not_keep_members_out),
        cmocka_unit_test(the_descriptor_wakes_for_a_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
