#include "aggregator/trial/trial_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOWEST 20000 // lowest port that is tried; the kernel itself chooses higher ones
#define HIGHEST 32000

static bool is_free_for(int kind, uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int yes = 1, file = socket(AF_INET, kind | SOCK_CLOEXEC, 0);
    if (file < 0)
        return false;
    // With this option a port is taken only if a program listens at it. Connections of a run that
    // has just ended do not count.
    if (kind == SOCK_STREAM)
        setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    bool is_free =
        bind(file, (const struct sockaddr *)(const void *)&address, sizeof(address)) == 0 &&
        (kind != SOCK_STREAM || listen(file, 1) == 0);
    close(file);
    return is_free;
}

static bool is_free(uint16_t port)
{
    return is_free_for(SOCK_STREAM, port) && is_free_for(SOCK_DGRAM, port);
}

static void assign(struct cn_trial_ports *ports, uint32_t place, uint16_t port)
{
    if (place == 0)
        ports->page = port;
    else if (place == 1)
        ports->gateway = port;
    else
        ports->boards[place - 2] = port;
}

static cn_err look(struct cn_trial_ports *ports, uint32_t count, struct cn_diag *diag)
{
    // Two trials that begin at the same time try different ports.
    uint32_t span = HIGHEST - LOWEST, begin = (uint32_t)getpid() * 97 % span, place = 0;
    for (uint32_t i = 0; i < span && place < count; i++) {
        uint16_t port = (uint16_t)(LOWEST + (begin + i) % span);
        if (is_free(port))
            assign(ports, place++, port);
    }
    if (place == count)
        return CN_OK;
    cn_diag_add(diag, "%u ports are needed and %u of %d to %d are free", count, place, LOWEST,
                HIGHEST);
    return CN_EEXIST;
}

cn_err cn_trial_ports_choose(struct cn_trial_ports *ports, uint32_t boards, uint16_t first,
                             struct cn_diag *diag)
{
    uint32_t count = boards + 2;
    if (first == 0)
        return look(ports, count, diag);
    if (first + count - 1 > UINT16_MAX) {
        cn_diag_add(diag, "--port %u: expected at most %u, for %u boards", first,
                    UINT16_MAX - count + 1, boards);
        return CN_EINVAL;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint16_t port = (uint16_t)(first + i);
        if (!is_free(port)) {
            cn_diag_add(diag, "--port %u: another program uses port %u of 127.0.0.1", first, port);
            return CN_EEXIST;
        }
        assign(ports, i, port);
    }
    return CN_OK;
}
