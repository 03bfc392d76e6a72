// A gateway behind a name that stands for several addresses. The resolver is replaced, so that the
// test needs no name server and no entries of the machine.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netdb.h>

#include "coap_world.h"

static const char *const *_Atomic results; // of any name, in order; NULL at the end

static struct addrinfo *make_result(const char *host, const char *port)
{
    struct addrinfo *made = calloc(1, sizeof(*made) + sizeof(struct sockaddr_in));
    struct sockaddr_in *name = (struct sockaddr_in *)(made + 1);

    assert_non_null(made);
    name->sin_family = AF_INET;
    name->sin_port = htons((uint16_t)atoi(port));
    if (inet_pton(AF_INET, host, &name->sin_addr) != 1) {
        free(made);
        return NULL;
    }
    made->ai_family = AF_INET;
    made->ai_addr = (struct sockaddr *)name;
    made->ai_addrlen = sizeof(*name);
    return made;
}

// In place of the C library's.
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found)
{
    struct addrinfo **end = found;

    *found = make_result(host, port);
    if (*found)
        return 0;
    if (hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME;
    for (size_t i = 0; results[i]; i++) {
        struct addrinfo *made = make_result(results[i], port);

        if (!made)
            return EAI_MEMORY;
        *end = made;
        end = &made->ai_next;
    }
    return *found ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *found)
{
    while (found) {
        struct addrinfo *next = found->ai_next;

        free(found);
        found = next;
    }
}

// Listens at 127.0.0.1 only; the client knows it by name.
static void start_named(struct coap_world *world)
{
    char address[32];

    cn_log_set_level(CN_LOG_ERROR);
    free_address(world->address);
    assert_int_equal(open_server(world), CN_OK);
    snprintf(address, sizeof(address), "gateway.lan%s", strchr(world->address, ':'));
    snprintf(world->address, sizeof(world->address), "%s", address);
    world->client = open_client(world, "board-1", '1');
}

static void all_addresses_of_a_name_are_tried(void **state)
{
    static const char *const several[] = {"127.0.0.3", "127.0.0.2", "127.0.0.1", NULL};

    (void)state;
    results = several;
    for (int tcp = 0; tcp < 2; tcp++) {
        struct coap_world world = {.transport = tcp ? CN_LINK_TCP : CN_LINK_UDP};

        start_named(&world);
        wait_long_for(&world, CN_EXCHANGE_UP);
        stop(&world);
    }
}

static void a_name_that_leads_nowhere_is_looked_up_again(void **state)
{
    static const char *const wrong[] = {"127.0.0.3", "127.0.0.2", NULL};
    static const char *const right[] = {"127.0.0.1", NULL};
    struct coap_world world = {.transport = CN_LINK_UDP};

    (void)state;
    results = wrong;
    start_named(&world);
    wait_long_for(&world, CN_EXCHANGE_DOWN);
    results = right;
    wait_long_for(&world, CN_EXCHANGE_UP);
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_addresses_of_a_name_are_tried),
        cmocka_unit_test(a_name_that_leads_nowhere_is_looked_up_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
