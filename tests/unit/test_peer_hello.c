#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "transport/peer/peer_hello.h"

#define MEMBERS 3

// Each board's own list, with the keys of its pairs.
struct group {
    struct cn_member members[MEMBERS][MEMBERS];
    struct cn_peer_hello hellos[MEMBERS];
};

static struct group make_group(void)
{
    struct group group = {0};

    for (uint32_t i = 0; i < MEMBERS; i++)
        for (uint32_t k = 0; k < MEMBERS; k++) {
            struct cn_member *member = &group.members[i][k];

            snprintf(member->name, sizeof(member->name), "board-%u", k);
            snprintf(member->address, sizeof(member->address), "10.0.0.%u:7101", k);
            if (i != k)
                memset(member->pair_key, (int)(1 + i + k), CN_KEY_SIZE);
        }
    return group;
}

// Without a socket: the listen address is that of one interface.
static void init_hellos(struct group *group)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        cn_peer_hello_init(&group->hellos[i], "10.0.0.1:7101", group->members[i], MEMBERS, i);
}

static void a_call_is_heard_by_each_member(void **state)
{
    struct group group = make_group();
    char text[CN_PEER_HELLO_MAX], address[CN_ADDRESS_SIZE];
    uint32_t member;
    size_t size;

    (void)state;
    init_hellos(&group);
    size = cn_peer_hello_encode(&group.hellos[0], "10.0.0.77", text);
    assert_int_equal(size, strlen("cairn-hello-1 board-0 10.0.0.77:7101") + 2 * 33);
    for (uint32_t i = 1; i < MEMBERS; i++) {
        assert_true(cn_peer_hello_decode(&group.hellos[i], text, size, &member, address));
        assert_int_equal(member, 0);
        assert_string_equal(address, "10.0.0.77:7101");
    }
    assert_false(cn_peer_hello_decode(&group.hellos[0], text, size, &member, address)); // its own
}

static void a_call_of_somebody_else_is_not_heard(void **state)
{
    struct group group = make_group();
    char text[CN_PEER_HELLO_MAX], address[CN_ADDRESS_SIZE];
    uint32_t member;
    size_t size;

    (void)state;
    init_hellos(&group);
    memset(group.members[0][1].pair_key, 0x99, CN_KEY_SIZE);
    size = cn_peer_hello_encode(&group.hellos[0], "10.0.0.77", text);
    assert_false(cn_peer_hello_decode(&group.hellos[1], text, size, &member, address));
    assert_true(cn_peer_hello_decode(&group.hellos[2], text, size, &member, address));
    memset(group.members[2][0].pair_key, 0, CN_KEY_SIZE); // not enrolled yet
    assert_false(cn_peer_hello_decode(&group.hellos[2], text, size, &member, address));
}

static void any_change_of_a_call_makes_it_worthless(void **state)
{
    struct group group = make_group();
    char text[CN_PEER_HELLO_MAX], address[CN_ADDRESS_SIZE];
    uint32_t member;
    size_t size, tags = strlen("cairn-hello-1 board-0 10.0.0.77:7101");

    (void)state;
    init_hellos(&group);
    size = cn_peer_hello_encode(&group.hellos[0], "10.0.0.77", text);
    for (size_t i = 0; i < tags; i++) { // then come the tags of both others
        text[i] ^= 1;
        assert_false(cn_peer_hello_decode(&group.hellos[1], text, size, &member, address));
        text[i] ^= 1;
    }
    for (size_t cut = 0; cut < tags + 33; cut++)
        assert_false(cn_peer_hello_decode(&group.hellos[1], text, cut, &member, address));
    assert_true(cn_peer_hello_decode(&group.hellos[1], text, size, &member, address));
}

static void a_board_at_one_address_calls_nobody(void **state)
{
    struct group group = make_group();

    (void)state;
    init_hellos(&group);
    cn_peer_hello_step(&group.hellos[0], true, 100000);
    assert_int_equal(group.hellos[0].calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_heard_by_each_member),
        cmocka_unit_test(a_call_of_somebody_else_is_not_heard),
        cmocka_unit_test(any_change_of_a_call_makes_it_worthless),
        cmocka_unit_test(a_board_at_one_address_calls_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
