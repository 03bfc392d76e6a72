// free_address.h - finds a loopback address whose port, for UDP and TCP, is the test's own.
#pragma once

#include <arpa/inet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// The range lies below the ports that the kernel gives to sockets of other programs that ask for
// none.
enum { FREE_PORT_FIRST = 10000, FREE_PORT_END = 32768 };

static inline bool port_is_free(unsigned port, int type)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                               .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, type, 0);
    bool is_free = bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0;

    close(fd);
    return is_free;
}

// Keeps other tests on this machine away from a port until this process ends. The socket with the
// port in its name stays open, as in tests/end_to_end/cluster.py.
static inline bool reserve_port(unsigned port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "cairn-test-port-%u", port);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&name, size) == 0 && port_is_free(port, SOCK_DGRAM) &&
        port_is_free(port, SOCK_STREAM))
        return true;
    close(fd);
    return false;
}

// Returns a reserved port. Include cmocka.h before this header.
static inline unsigned free_port(void)
{
    const unsigned pairs = (FREE_PORT_END - FREE_PORT_FIRST) / 2;
    unsigned begin = (unsigned)getpid() * 37;
    unsigned tried = 0;
    unsigned port;

    do {
        port = FREE_PORT_FIRST + (begin + tried) % pairs * 2;
        assert_true(tried++ < pairs);
    } while (!reserve_port(port));
    return port;
}

// Writes "127.0.0.1:PORT" with a reserved port.
static inline void free_address(char address[32])
{
    snprintf(address, 32, "127.0.0.1:%u", free_port());
}
