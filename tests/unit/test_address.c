// Addresses as text: read, and printed with the port of another.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <net/if.h>
#include <netinet/in.h>

#include "transport/coap/address.h"

static void assert_prints(const char *heard, const char *listed, const char *wanted)
{
    struct cn_address address;
    char text[64];

    assert_int_equal(cn_address_parse(heard, &address), CN_OK);
    assert_int_equal(cn_address_print(&address, listed, text, sizeof(text)), CN_OK);
    assert_string_equal(text, wanted);
}

static void a_host_is_printed_with_the_port_of_another_address(void **state)
{
    struct cn_address address;
    char text[64];

    (void)state;
    assert_prints("10.0.0.7:40000", "10.0.0.3:7101", "10.0.0.7:7101");
    assert_prints("10.0.0.7:40000", "board-3.lan:7101", "10.0.0.7:7101");
    assert_prints("[2001:db8::7]:40000", "[2001:db8::3]:7101", "[2001:db8::7]:7101");
    assert_prints("[::ffff:10.0.0.7]:40000", "10.0.0.3:7101", "10.0.0.7:7101");
    assert_int_equal(cn_address_parse("10.0.0.7:40000", &address), CN_OK);
    assert_int_equal(cn_address_print(&address, "nothing", text, sizeof(text)), CN_EINVAL);
    assert_int_equal(cn_address_print(&address, "10.0.0.3:7101", text, 13), CN_EINVAL);
}

static void a_link_local_address_has_a_zone(void **state)
{
    struct cn_address address;
    const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&address.storage;

    (void)state;
    assert_int_equal(cn_address_parse("[fe80::7%lo]:5684", &address), CN_OK);
    assert_int_equal(sin6->sin6_family, AF_INET6);
    assert_int_equal(sin6->sin6_scope_id, if_nametoindex("lo"));
    assert_prints("[fe80::7%lo]:40000", "[fe80::3%lo]:7101", "[fe80::7%lo]:7101");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_is_printed_with_the_port_of_another_address),
        cmocka_unit_test(a_link_local_address_has_a_zone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
