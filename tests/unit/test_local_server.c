// The server of Unix sockets: it answers lines, and slow, flooding or many clients do not delay
// others.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/local/local_listen.h"
#include "transport/local/local_server.h"

struct fixture {
    char base[64], directory[256]; // longer than the address of a socket
    struct cn_local_server *server;
    uint64_t now_ms;
    unsigned handled;
    struct cn_local_peer peer;
};

static void echo(void *context, size_t number, const struct cn_local_peer *peer, const char *line,
                 size_t size, struct cn_buffer *answer)
{
    struct fixture *fixture = context;
    fixture->handled++;
    fixture->peer = *peer;
    assert_int_equal(number, 0);
    assert_int_equal(line[size], 0);
    if (strncmp(line, "large", 5) == 0)
        assert_int_equal(cn_buffer_resize(answer, 4u << 20), CN_OK);
    assert_int_equal(cn_buffer_append(answer, line, size), CN_OK);
}

static int open_server(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct cn_local_config config = {
        .count = 1, .too_long = "too long", .too_many = "too many", .handle = echo};
    config.context = fixture;
    snprintf(fixture->base, sizeof(fixture->base), "/tmp/cairn-local-XXXXXX");
    assert_non_null(mkdtemp(fixture->base));
    snprintf(fixture->directory, sizeof(fixture->directory), "%s/%0150d", fixture->base, 1);
    assert_int_equal(mkdir(fixture->directory, 0700), 0);
    assert_int_equal(cn_local_listen(fixture->directory, "s", &config.listening[0]), CN_OK);
    assert_int_equal(cn_local_server_open(&config, &fixture->server), CN_OK);
    fixture->now_ms = 1000;
    *state = fixture;
    return 0;
}

static int close_server(void **state)
{
    struct fixture *fixture = *state;
    cn_local_server_close(fixture->server);
    cn_local_unlisten(fixture->directory, "s");
    assert_int_equal(rmdir(fixture->directory), 0);
    assert_int_equal(rmdir(fixture->base), 0);
    free(fixture);
    return 0;
}

static void step(struct fixture *fixture)
{
    for (int i = 0; i < 4; i++)
        cn_local_server_step(fixture->server, fixture->now_ms);
}

static int dial(struct fixture *fixture)
{
    int client;
    assert_int_equal(cn_local_connect(fixture->directory, "s", &client), CN_OK);
    assert_int_equal(fcntl(client, F_SETFL, O_NONBLOCK), 0);
    step(fixture);
    return client;
}

static void say(struct fixture *fixture, int client, const char *text)
{
    assert_int_equal(send(client, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    step(fixture);
}

static void expect(int client, const char *wanted)
{
    char text[256];
    ssize_t size = recv(client, text, sizeof(text) - 1, 0);
    assert_true(size > 0);
    text[size] = '\0';
    assert_string_equal(text, wanted);
}

static void expect_silence(int client)
{
    char byte;
    assert_int_equal(recv(client, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
}

static void expect_end(int client)
{
    char byte;
    ssize_t size = recv(client, &byte, 1, 0);
    assert_true(size == 0 || (size < 0 && errno == ECONNRESET));
    close(client);
}

static void lines_are_answered_in_their_order(void **state)
{
    struct fixture *fixture = *state;
    struct stat info;
    char path[300];
    snprintf(path, sizeof(path), "%s/s", fixture->directory);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    int client = dial(fixture);
    say(fixture, client, "a");
    expect_silence(client);
    say(fixture, client, "b\ncd\n\nef");
    expect(client, "ab\ncd\n\n");
    say(fixture, client, "\n");
    expect(client, "ef\n");
    assert_int_equal(fixture->peer.uid, getuid());
    assert_int_equal(fixture->peer.pid, getpid());
    close(client);
}

static void a_line_that_is_too_long_ends_its_connection_only(void **state)
{
    struct fixture *fixture = *state;
    static char line[CN_LOCAL_LINE_MAX + 2];
    int loud = dial(fixture), other = dial(fixture);
    memset(line, 'x', sizeof(line));
    for (size_t sent = 0; sent < sizeof(line);) {
        ssize_t count = send(loud, line + sent, sizeof(line) - sent, MSG_NOSIGNAL);
        if (count > 0)
            sent += (size_t)count;
        step(fixture);
    }
    expect(loud, "too long\n");
    expect_end(loud);
    say(fixture, other, "fine\n");
    expect(other, "fine\n");
    assert_int_equal(fixture->handled, 1);
    close(other);
}

static void an_idle_connection_makes_room(void **state)
{
    struct fixture *fixture = *state;
    int clients[CN_LOCAL_CONNECTIONS];
    for (int i = 0; i < CN_LOCAL_CONNECTIONS; i++)
        clients[i] = dial(fixture);
    int late = dial(fixture);
    expect(late, "too many\n");
    expect_end(late);
    fixture->now_ms += CN_LOCAL_IDLE_MS;
    say(fixture, clients[0], "here\n");
    expect(clients[0], "here\n");
    say(fixture, clients[1], "not a whole line"); // which does not count
    fixture->now_ms += 1;
    step(fixture);
    for (int i = 1; i < CN_LOCAL_CONNECTIONS; i++)
        expect_end(clients[i]);
    int next = dial(fixture);
    say(fixture, next, "next\n");
    expect(next, "next\n");
    close(next);
    close(clients[0]);
}

static void a_client_that_does_not_read_is_given_no_more(void **state)
{
    struct fixture *fixture = *state;
    int slow = dial(fixture), other = dial(fixture);
    say(fixture, slow, "large 1\nlarge 2\nlarge 3\n");
    assert_int_equal(fixture->handled, 1);
    say(fixture, other, "fine\n");
    expect(other, "fine\n");
    fixture->now_ms += CN_LOCAL_IDLE_MS + 1;
    step(fixture);
    assert_int_equal(fixture->handled, 2);
    close(slow);
    close(other);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, open_server, close_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(lines_are_answered_in_their_order),
        WITH_SERVER(a_line_that_is_too_long_ends_its_connection_only),
        WITH_SERVER(an_idle_connection_makes_room),
        WITH_SERVER(a_client_that_does_not_read_is_given_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
