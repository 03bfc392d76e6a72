// free_address.h - an address on the loopback interface whose UDP port nobody has.
#pragma once

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void free_address(char address[32])
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(name);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&name, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &size), 0);
    close(fd);
    snprintf(address, 32, "127.0.0.1:%u", ntohs(name.sin_port));
}
