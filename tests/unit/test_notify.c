// A program notifies the service manager, and works without one.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/port/platform.h"

// Binds name ('@' for the abstract namespace) and says what arrived there.
static void expect_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int manager = socket(AF_UNIX, SOCK_DGRAM, 0);
    char got[64] = "";

    memcpy(address.sun_path, name, strlen(name));
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    assert_int_equal(bind(manager, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                     0);
    setenv("NOTIFY_SOCKET", name, 1);
    cn_platform_notify("READY=1\nSTATUS=training");
    assert_int_equal(recv(manager, got, sizeof(got), MSG_DONTWAIT), 23);
    assert_string_equal(got, "READY=1\nSTATUS=training");
    close(manager);
    unsetenv("NOTIFY_SOCKET");
}

static void a_message_reaches_the_manager(void **state)
{
    char name[64];

    (void)state;
    snprintf(name, sizeof(name), "/tmp/cairn-notify-%d", (int)getpid());
    expect_at(name);
    unlink(name);
    snprintf(name, sizeof(name), "@cairn-notify-%d", (int)getpid());
    expect_at(name);
}

static void without_a_manager_nothing_happens(void **state)
{
    char longer[200];

    (void)state;
    unsetenv("NOTIFY_SOCKET");
    cn_platform_notify("READY=1");
    memset(longer, 'a', sizeof(longer) - 1);
    longer[0] = '/';
    longer[sizeof(longer) - 1] = '\0';
    for (size_t i = 0; i < 4; i++) {
        const char *const wrong[] = {"", "relative", "/nowhere/socket", longer};

        setenv("NOTIFY_SOCKET", wrong[i], 1);
        cn_platform_notify("READY=1");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_reaches_the_manager),
        cmocka_unit_test(without_a_manager_nothing_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
