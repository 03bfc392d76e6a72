#include "ports/tcp/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 32
#define SMALL_SEGMENT 1140 // bytes of TCP in a packet of 1200 with a header of IPv6
#define REPEATS 2          // times that data was sent again in vain; rarer is usual loss
#define SOCKET_FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

// Splits "host:port"; brackets around an IPv6 host are removed.
static cn_err split_address(const char *address, char host[128], char port[8])
{
    const char *colon = strrchr(address, ':');
    const char *end = colon;
    char *rest;
    unsigned long number;

    if (!colon || colon == address || colon - address >= 128)
        return CN_EINVAL;
    if (address[0] == '[' && colon[-1] == ']') {
        address++;
        end--;
    }
    memcpy(host, address, (size_t)(end - address));
    host[end - address] = 0;
    number = strtoul(colon + 1, &rest, 10);
    if (*rest || rest == colon + 1 || number == 0 || number > 65535)
        return CN_EINVAL;
    snprintf(port, 8, "%lu", number);
    return CN_OK;
}

// Finds the first address of the host. The resolver is asked only if the host is not a numeric
// address.
static cn_err resolve(const char *address, struct sockaddr_storage *to, socklen_t *size)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[128], port[8];
    cn_err err;

    err = split_address(address, host, port);
    if (err)
        return err;
    if (getaddrinfo(host, port, &hints, &found) != 0) {
        hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
        if (getaddrinfo(host, port, &hints, &found) != 0)
            return CN_ENOTFOUND;
    }
    memcpy(to, found->ai_addr, found->ai_addrlen);
    *size = found->ai_addrlen;
    freeaddrinfo(found);
    return CN_OK;
}

static void set_option(int fd, int level, int name, int value)
{
    // Each option only improves detection or latency, so a kernel that lacks one is no error.
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

// Sets the options of a pair's socket. A peer that loses power sends no FIN: keepalive detects that
// on an idle stream, the user timeout on one with data under way.
static void tune(int fd, uint32_t silence_ms)
{
    int probes = silence_ms < 2000 ? 2 : (int)(silence_ms / 1000);

    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, probes);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)silence_ms);
}

void cn_socket_use_small_segments(int descriptor)
{
    set_option(descriptor, IPPROTO_TCP, TCP_MAXSEG, SMALL_SEGMENT);
}

bool cn_socket_loses_large(int descriptor)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_unacked > 0 && info.tcpi_retransmits >= REPEATS &&
           info.tcpi_snd_mss > SMALL_SEGMENT;
}

static cn_err bind_and_listen(const struct sockaddr *address, socklen_t size, int *descriptor)
{
    int fd = socket(address->sa_family, SOCKET_FLAGS, 0);
    int number;

    if (fd < 0)
        return cn_err_from_errno(errno);
    // The port of a restarted board may be in TIME_WAIT.
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(fd, address, size) == 0 && listen(fd, BACKLOG) == 0) {
        *descriptor = fd;
        return CN_OK;
    }
    number = errno;
    close(fd);
    if (number == EADDRNOTAVAIL)
        return CN_ENOTFOUND;
    return number == EADDRINUSE ? CN_EEXIST : CN_EIO;
}

cn_err cn_socket_listen(const char *address, int *descriptor)
{
    struct sockaddr_storage bound = {0};
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
    char host[128], port[8];
    socklen_t size = 0;
    cn_err err;

    err = split_address(address, host, port);
    if (err)
        return err;
    err = resolve(address, &bound, &size);
    if (!err)
        err = bind_and_listen((const struct sockaddr *)&bound, size, descriptor);
    if (err != CN_ENOTFOUND)
        return err;
    // Behind a NAT or in a container, the members know this board by an address that the machine
    // does not have.
    any6.sin6_port = any.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    err = bind_and_listen((const struct sockaddr *)&any6, sizeof(any6), descriptor);
    if (err && err != CN_EEXIST)
        err = bind_and_listen((const struct sockaddr *)&any, sizeof(any), descriptor);
    return err;
}

cn_err cn_socket_connect(const char *address, uint32_t silence_ms, bool small, int *descriptor)
{
    struct sockaddr_storage to = {0};
    socklen_t size = 0;
    cn_err err;
    int fd;

    err = resolve(address, &to, &size);
    if (err)
        return err;
    fd = socket(to.ss_family, SOCKET_FLAGS, 0);
    if (fd < 0)
        return cn_err_from_errno(errno);
    tune(fd, silence_ms);
    if (small)
        cn_socket_use_small_segments(fd);
    if (connect(fd, (const struct sockaddr *)&to, size) && errno != EINPROGRESS) {
        close(fd);
        return CN_EPEER;
    }
    *descriptor = fd;
    return CN_OK;
}

cn_err cn_socket_connected(int descriptor)
{
    struct pollfd ready = {.fd = descriptor, .events = POLLOUT};
    int number = 0;
    socklen_t size = sizeof(number);

    if (poll(&ready, 1, 0) <= 0)
        return CN_EAGAIN;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &number, &size) || number)
        return CN_EPEER;
    return CN_OK;
}

cn_err cn_socket_accept(int listener, uint32_t silence_ms, int *descriptor)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        // Out of descriptors or memory: the caller may go on, the connection waits in the backlog.
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? CN_ENOMEM : CN_EAGAIN;
    }
    tune(fd, silence_ms);
    *descriptor = fd;
    return CN_OK;
}

void cn_socket_peer(int descriptor, char text[CN_SOCKET_TEXT])
{
    struct sockaddr_storage address;
    socklen_t size = sizeof(address);

    if (getpeername(descriptor, (struct sockaddr *)&address, &size) ||
        getnameinfo((struct sockaddr *)&address, size, text, CN_SOCKET_TEXT, NULL, 0,
                    NI_NUMERICHOST))
        snprintf(text, CN_SOCKET_TEXT, "?");
}

void cn_socket_source(int descriptor, uint8_t source[16])
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);

    memset(source, 0, 16);
    if (getpeername(descriptor, (struct sockaddr *)&address, &size))
        return;
    if (address.ss_family == AF_INET) {
        memcpy(source, &((const struct sockaddr_in *)(const void *)&address)->sin_addr, 4);
    } else if (address.ss_family == AF_INET6) {
        const struct in6_addr *from =
            &((const struct sockaddr_in6 *)(const void *)&address)->sin6_addr;

        memcpy(source, from, IN6_IS_ADDR_V4MAPPED(from) ? 16 : 8);
    }
}
