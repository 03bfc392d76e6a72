// A pair without encryption, keys or names: what the same collective costs without them. Only this
// bench has it.
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ports/tcp/pair.h"
#include "ports/tcp/socket.h"

struct cn_pair {
    int fd;
    bool connects, ready;
    uint32_t self, member;
    short events;
};

bool cn_pair_has_aes(void)
{
    return false;
}

static cn_err make(int fd, bool connects, uint32_t self, uint32_t member, struct cn_pair **pair)
{
    *pair = calloc(1, sizeof(**pair));
    if (!*pair) {
        close(fd);
        return CN_ENOMEM;
    }
    **pair = (struct cn_pair){.fd = fd, .connects = connects, .self = self, .member = member};
    return CN_OK;
}

cn_err cn_pair_listen(const char *address, int *descriptor)
{
    return cn_socket_listen(address, descriptor);
}

cn_err cn_pair_connect(const struct cn_pair_config *config, uint32_t member, struct cn_pair **pair)
{
    int fd;
    cn_err err = cn_socket_connect(config->members[member].address, config->silence_ms, false, &fd);

    return err ? err : make(fd, true, config->self, member, pair);
}

cn_err cn_pair_accept(const struct cn_pair_config *config, int listener, struct cn_pair **pair)
{
    int fd;
    cn_err err = cn_socket_accept(listener, config->silence_ms, &fd);

    return err ? err : make(fd, false, config->self, UINT32_MAX, pair);
}

// Maps what send and recv return; 0 bytes received are the end.
static cn_err count_bytes(struct cn_pair *pair, ssize_t result, short events, size_t *count)
{
    pair->events = events;
    if (result > 0) {
        *count = (size_t)result;
        return CN_OK;
    }
    return result < 0 && (errno == EAGAIN || errno == EINTR) ? CN_EAGAIN : CN_EPEER;
}

// The side that connects says which rank it is.
cn_err cn_pair_handshake(struct cn_pair *pair)
{
    uint8_t name = (uint8_t)pair->self;
    size_t count;
    cn_err err = CN_OK;

    if (pair->ready)
        return CN_OK;
    if (pair->connects) {
        pair->events = POLLOUT;
        err = cn_socket_connected(pair->fd);
        if (!err)
            err = count_bytes(pair, send(pair->fd, &name, 1, MSG_NOSIGNAL), POLLOUT, &count);
    } else {
        err = count_bytes(pair, recv(pair->fd, &name, 1, 0), POLLIN, &count);
        pair->member = name;
    }
    pair->ready = !err;
    return err;
}

bool cn_pair_reached(const struct cn_pair *pair)
{
    return pair->ready;
}

// Nothing is proved here; who connects is believed.
bool cn_pair_is_proven(const struct cn_pair *pair)
{
    (void)pair;
    return true;
}

uint32_t cn_pair_member(const struct cn_pair *pair)
{
    return pair->member;
}

uint64_t cn_pair_peer_epoch(const struct cn_pair *pair)
{
    (void)pair;
    return 1;
}

int cn_pair_descriptor(const struct cn_pair *pair)
{
    return pair->fd;
}

bool cn_pair_loses_large(const struct cn_pair *pair)
{
    return cn_socket_loses_large(pair->fd);
}

short cn_pair_events(const struct cn_pair *pair)
{
    return pair->events;
}

cn_err cn_pair_send(struct cn_pair *pair, const void *data, size_t size, size_t *sent)
{
    return count_bytes(pair, send(pair->fd, data, size, MSG_NOSIGNAL), POLLOUT, sent);
}

cn_err cn_pair_receive(struct cn_pair *pair, void *data, size_t size, size_t *received)
{
    return count_bytes(pair, recv(pair->fd, data, size, 0), POLLIN, received);
}

// Members of a bench do not fail, so there is nothing to tell.
cn_err cn_pair_give_up(struct cn_pair *pair)
{
    (void)pair;
    return CN_OK;
}

enum cn_pair_end cn_pair_drain(struct cn_pair *pair)
{
    (void)pair;
    return CN_PAIR_CUT;
}

void cn_pair_close(struct cn_pair *pair)
{
    if (!pair)
        return;
    close(pair->fd);
    free(pair);
}
