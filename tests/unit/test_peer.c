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

#include "ports/tcp/peer.h"
#include "runtime/port/platform.h"

#define LINKS 3
#define STRANGERS 20

struct fixture {
    struct cn_member members[LINKS][LINKS]; // the list of each
    struct cn_peer_link *links[LINKS];
};

static void open_link(struct fixture *fixture, uint32_t self)
{
    assert_int_equal(cn_peer_tcp_open(fixture->members[self][self].address, fixture->members[self],
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

static cn_err send_text(struct fixture *fixture, uint32_t from, uint32_t to, const char *text)
{
    struct cn_peer_link *link = fixture->links[from];

    return link ? link->ops->send(link, to, text, strlen(text) + 1) : CN_ENOTFOUND;
}

static void assert_arrives(struct fixture *fixture, uint32_t from, uint32_t to, const char *text)
{
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t sender = UINT32_MAX;
    size_t size = 0;

    assert_int_equal(await_message(fixture, to, 5000, &sender, message, &size), CN_OK);
    assert_int_equal(sender, from);
    assert_int_equal(size, strlen(text) + 1);
    assert_string_equal((char *)message, text);
}

static void a_message_arrives_whole_and_names_its_sender(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    for (uint32_t from = 0; from < LINKS; from++) {
        for (uint32_t to = 0; to < LINKS; to++) {
            if (from == to)
                continue;
            assert_int_equal(send_text(&fixture, from, to, "hello"), CN_OK);
            assert_arrives(&fixture, from, to, "hello");
        }
    }
    tear_down(&fixture);
}

static void messages_of_the_largest_size_keep_their_order(void **state)
{
    struct fixture fixture;
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t from;
    size_t size;

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 8; i++) {
            memset(message, round * 8 + i, sizeof(message));
            assert_int_equal(
                fixture.links[0]->ops->send(fixture.links[0], 1, message, sizeof(message)), CN_OK);
        }
        for (int i = 0; i < 8; i++) {
            assert_int_equal(await_message(&fixture, 1, 5000, &from, message, &size), CN_OK);
            assert_int_equal(size, CN_PEER_MESSAGE_MAX);
            assert_int_equal(message[0], round * 8 + i);
            assert_int_equal(message[CN_PEER_MESSAGE_MAX - 1], round * 8 + i);
        }
    }
    tear_down(&fixture);
}

static void impossible_sends_are_refused(void **state)
{
    struct fixture fixture;
    uint8_t message[CN_PEER_MESSAGE_MAX + 1] = {0};

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], 1, message, sizeof(message)),
                     CN_ERANGE);
    assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], 1, message, 0), CN_ERANGE);
    assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], 0, message, 1), CN_ERANGE);
    assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], LINKS, message, 1), CN_ERANGE);
    tear_down(&fixture);
}

static void a_restarted_member_is_reached_again(void **state)
{
    struct fixture fixture;
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t from;
    size_t size;

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    for (int round = 0; round < 3; round++) {
        bool heard = false;
        int attempts = 0;

        assert_int_equal(send_text(&fixture, 0, 1, "before"), CN_OK);
        assert_arrives(&fixture, 0, 1, "before");
        assert_int_equal(send_text(&fixture, 1, 0, "back"), CN_OK);
        assert_arrives(&fixture, 1, 0, "back");
        close_link(&fixture, 1);
        usleep(20000);
        open_link(&fixture, 1);
        // What finds the old connection cut is lost, as a datagram may be: say it until it is
        // heard.
        while (!heard) {
            assert_int_equal(send_text(&fixture, 0, 1, "again"), CN_OK);
            heard = await_message(&fixture, 1, 50, &from, message, &size) == CN_OK;
            assert_true(++attempts < 100);
        }
        assert_int_equal(from, 0);
        close_link(&fixture, 0);
        close_link(&fixture, 1);
        open_link(&fixture, 0);
        open_link(&fixture, 1);
    }
    tear_down(&fixture);
}

static void the_newest_messages_wait_for_an_absent_member(void **state)
{
    struct fixture fixture;
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t from, first = UINT32_MAX, last = 0;
    size_t size;

    (void)state;
    set_up(&fixture);
    open_link(&fixture, 0);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(fixture.links[0]->ops->send(fixture.links[0], 1, &i, sizeof(i)), CN_OK);
    open_link(&fixture, 1);
    while (last != 999 && await_message(&fixture, 1, 5000, &from, message, &size) == CN_OK) {
        memcpy(&last, message, sizeof(last));
        if (first == UINT32_MAX)
            first = last;
    }
    assert_int_equal(last, 999);
    assert_true(first > 900);
    tear_down(&fixture);
}

static void a_member_with_a_wrong_key_is_not_heard(void **state)
{
    struct fixture fixture;
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t from;
    size_t size;

    (void)state;
    set_up(&fixture);
    fixture.members[1][0].pair_key[0] ^= 1;
    open_all(&fixture);
    assert_int_equal(send_text(&fixture, 1, 0, "forged"), CN_OK);
    assert_int_equal(await_message(&fixture, 0, 500, &from, message, &size), CN_ETIMEOUT);
    assert_int_equal(send_text(&fixture, 2, 0, "true"), CN_OK);
    assert_arrives(&fixture, 2, 0, "true");
    tear_down(&fixture);
}

static int connect_stranger(const struct fixture *fixture, uint32_t to)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7501)};
    char host[128];
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    snprintf(host, sizeof(host), "%s", fixture->members[to][to].address);
    *strchr(host, ':') = 0;
    inet_pton(AF_INET, host, &address.sin_addr);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void strangers_do_not_keep_members_out(void **state)
{
    struct fixture fixture;
    int strangers[STRANGERS];

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    for (int i = 0; i < STRANGERS; i++) {
        strangers[i] = connect_stranger(&fixture, 1);
        if (i % 2) // silent ones and noisy ones
            assert_int_equal(send(strangers[i], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    }
    assert_int_equal(send_text(&fixture, 0, 1, "hello"), CN_OK);
    assert_arrives(&fixture, 0, 1, "hello");
    for (int i = 0; i < STRANGERS; i++)
        close(strangers[i]);
    tear_down(&fixture);
}

static void the_descriptor_wakes_for_a_message_and_sleeps_after_it(void **state)
{
    struct fixture fixture;
    struct pollfd ready;
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t from;
    size_t size;

    (void)state;
    set_up(&fixture);
    open_all(&fixture);
    assert_int_equal(send_text(&fixture, 0, 1, "connect"), CN_OK);
    assert_arrives(&fixture, 0, 1, "connect");
    ready = (struct pollfd){.fd = fixture.links[1]->ops->descriptor(fixture.links[1]),
                            .events = POLLIN};
    assert_int_equal(fixture.links[1]->ops->poll(fixture.links[1], &from, message, &size),
                     CN_EAGAIN);
    assert_int_equal(poll(&ready, 1, 0), 0);
    assert_int_equal(send_text(&fixture, 0, 1, "wake"), CN_OK);
    assert_int_equal(poll(&ready, 1, 2000), 1);
    assert_arrives(&fixture, 0, 1, "wake");
    tear_down(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_arrives_whole_and_names_its_sender),
        cmocka_unit_test(messages_of_the_largest_size_keep_their_order),
        cmocka_unit_test(impossible_sends_are_refused),
        cmocka_unit_test(a_restarted_member_is_reached_again),
        cmocka_unit_test(the_newest_messages_wait_for_an_absent_member),
        cmocka_unit_test(a_member_with_a_wrong_key_is_not_heard),
        cmocka_unit_test(strangers_do_not_keep_members_out),
        cmocka_unit_test(the_descriptor_wakes_for_a_message_and_sleeps_after_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
