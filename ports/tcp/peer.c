#include "ports/tcp/peer.h"

#include <assert.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ports/tcp/pair.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

#define PORT_OFFSET 1
#define HANDSHAKE_MS 2000
#define SILENCE_MS 3000
#define RETRY_MS 100      // after a failed attempt, doubled up to
#define RETRY_MAX_MS 2000 // this
#define STRANGERS 8       // accepted connections that have not said who they are
#define ACCEPTS 4         // for each poll
#define QUEUE 16          // messages to one member; the oldest is dropped
#define FRAME_HEADER 2    // u16 size
#define FRAME_MAX (FRAME_HEADER + CN_PEER_MESSAGE_MAX)

struct frame {
    size_t size;
    uint8_t bytes[FRAME_MAX];
};

// A pair and what the epoll set knows of it.
struct channel {
    struct cn_pair *pair; // NULL: none
    uint32_t watched;     // epoll events
    bool ready;           // the handshake is over
};

struct peer {
    struct channel out, in;
    uint64_t connect_at_ms;
    uint32_t retry_ms;
    struct frame queue[QUEUE];
    uint32_t queue_begin, queue_count;
    struct frame sending; // begun; sent_size of it are out
    size_t sent_size;
    struct frame receiving; // size: bytes that are here
};

struct peer_link {
    struct cn_peer_link base;
    struct cn_pair_config pairs;
    int epoll_fd;
    int listener;
    struct channel strangers[STRANGERS];
    uint32_t next_stranger;
    uint32_t next_peer; // poll begins with this one, so that nobody starves
    struct peer peers[CN_GROUP_MAX];
};

static void watch(struct peer_link *link, struct channel *channel, short wanted)
{
    uint32_t events = (wanted & POLLOUT ? EPOLLOUT : 0u) | (wanted & POLLIN ? EPOLLIN : 0u);
    struct epoll_event event = {.events = events};
    int fd = cn_pair_descriptor(channel->pair);

    if (events == channel->watched)
        return;
    // Failing costs latency only: poll is called every 50 ms as well.
    (void)epoll_ctl(link->epoll_fd, channel->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
    channel->watched = events;
}

static void close_channel(struct channel *channel)
{
    cn_pair_close(channel->pair); // closing takes it out of the epoll set
    *channel = (struct channel){0};
}

static cn_err shake(struct peer_link *link, struct channel *channel)
{
    cn_err err = cn_pair_handshake(channel->pair);

    if (err == CN_EAGAIN)
        watch(link, channel, cn_pair_events(channel->pair));
    channel->ready = !err;
    return err;
}

static void drop_out(struct peer_link *link, uint32_t member, cn_err err, uint64_t now_ms)
{
    struct peer *peer = &link->peers[member];

    if (err == CN_EAUTH || err == CN_ENOTSUP)
        cn_log(CN_LOG_WARN, "peer", "%s refuses this board: %s", link->pairs.members[member].name,
               cn_err_text(err));
    close_channel(&peer->out);
    peer->sending.size = 0; // a cut message is lost as a datagram would be
    peer->sent_size = 0;
    peer->connect_at_ms = now_ms + peer->retry_ms;
    peer->retry_ms = peer->retry_ms * 2 < RETRY_MAX_MS ? peer->retry_ms * 2 : RETRY_MAX_MS;
}

static cn_err connect_out(struct peer_link *link, uint32_t member, uint64_t now_ms)
{
    struct peer *peer = &link->peers[member];
    cn_err err = CN_OK;

    if (!peer->out.pair) {
        if (now_ms < peer->connect_at_ms)
            return CN_EAGAIN;
        err = cn_pair_connect(&link->pairs, member, &peer->out.pair);
    }
    if (!err && !peer->out.ready) {
        err = shake(link, &peer->out);
        if (!err)
            peer->retry_ms = RETRY_MS;
    }
    return err;
}

// The next frame of the queue becomes the one that is being sent.
static bool begin_frame(struct peer *peer)
{
    if (peer->sending.size)
        return true;
    if (peer->queue_count == 0)
        return false;
    peer->sending = peer->queue[peer->queue_begin];
    peer->sent_size = 0;
    peer->queue_begin = (peer->queue_begin + 1) % QUEUE;
    peer->queue_count--;
    return true;
}

// Nothing comes back on a connection that this side made, except its end.
static cn_err check_end(struct cn_pair *pair)
{
    uint8_t byte;
    size_t size;
    cn_err err = cn_pair_receive(pair, &byte, 1, &size);

    return err ? err : CN_EPEER;
}

static cn_err write_frames(struct peer_link *link, struct peer *peer)
{
    cn_err err = check_end(peer->out.pair);

    if (err != CN_EAGAIN)
        return err;
    while (begin_frame(peer)) {
        size_t sent;

        err = cn_pair_send(peer->out.pair, peer->sending.bytes + peer->sent_size,
                           peer->sending.size - peer->sent_size, &sent);
        if (err == CN_EAGAIN)
            watch(link, &peer->out, POLLIN | POLLOUT);
        if (err)
            return err;
        peer->sent_size += sent;
        if (peer->sent_size == peer->sending.size)
            peer->sending.size = 0;
    }
    watch(link, &peer->out, POLLIN);
    return CN_OK;
}

static void drive_out(struct peer_link *link, uint32_t member, uint64_t now_ms)
{
    struct peer *peer = &link->peers[member];
    cn_err err;

    if (!peer->out.pair && peer->queue_count == 0)
        return;
    err = connect_out(link, member, now_ms);
    if (!err)
        err = write_frames(link, peer);
    if (err && err != CN_EAGAIN)
        drop_out(link, member, err, now_ms);
}

static void admit(struct peer_link *link)
{
    struct cn_pair *pair;
    struct channel *slot;

    for (int i = 0; i < ACCEPTS; i++) {
        if (cn_pair_accept(&link->pairs, link->listener, &pair))
            return;
        slot = &link->strangers[link->next_stranger++ % STRANGERS];
        close_channel(slot); // the oldest: idle strangers cannot keep members out
        slot->pair = pair;
    }
}

// A stranger that has shown the key of a member takes the place of that member's older connection.
static void identify(struct peer_link *link, struct channel *stranger, uint64_t now_ms)
{
    cn_err err = shake(link, stranger);
    uint32_t member = cn_pair_member(stranger->pair);
    struct peer *peer;

    if (err == CN_EAGAIN)
        return;
    if (err) {
        if (err == CN_EAUTH)
            cn_log(CN_LOG_DEBUG, "peer", "a connection was refused: %s", cn_err_text(err));
        close_channel(stranger);
        return;
    }
    peer = &link->peers[member];
    close_channel(&peer->in);
    peer->in = *stranger;
    *stranger = (struct channel){0};
    watch(link, &peer->in, POLLIN);
    peer->receiving.size = 0;
    peer->retry_ms = RETRY_MS; // it is up: connect to it now
    if (peer->connect_at_ms > now_ms)
        peer->connect_at_ms = now_ms;
}

// Bytes that the frame still lacks, as far as known; CN_EFORMAT for an impossible size.
static cn_err missing_bytes(const struct frame *frame, size_t *missing)
{
    size_t size;

    *missing = FRAME_HEADER - frame->size;
    if (frame->size < FRAME_HEADER)
        return CN_OK;
    size = cn_get_u16(frame->bytes);
    if (size == 0 || size > CN_PEER_MESSAGE_MAX)
        return CN_EFORMAT;
    *missing = FRAME_HEADER + size - frame->size;
    return CN_OK;
}

static cn_err read_frame(struct peer *peer, uint8_t message[CN_PEER_MESSAGE_MAX], size_t *size)
{
    struct frame *frame = &peer->receiving;
    size_t missing, received;
    cn_err err;

    for (;;) {
        err = missing_bytes(frame, &missing);
        if (err)
            return err;
        if (missing == 0)
            break;
        err = cn_pair_receive(peer->in.pair, frame->bytes + frame->size, missing, &received);
        if (err)
            return err;
        frame->size += received;
    }
    *size = frame->size - FRAME_HEADER;
    memcpy(message, frame->bytes + FRAME_HEADER, *size);
    frame->size = 0;
    return CN_OK;
}

static cn_err link_poll(struct cn_peer_link *base, uint32_t *member,
                        uint8_t message[CN_PEER_MESSAGE_MAX], size_t *size)
{
    struct peer_link *link = (struct peer_link *)base;
    uint64_t now_ms = cn_platform_now_ms();
    cn_err err;

    admit(link);
    for (int i = 0; i < STRANGERS; i++)
        if (link->strangers[i].pair)
            identify(link, &link->strangers[i], now_ms);
    for (uint32_t i = 0; i < link->pairs.count; i++)
        drive_out(link, i, now_ms);
    for (uint32_t i = 0; i < link->pairs.count; i++) {
        uint32_t index = (link->next_peer + i) % link->pairs.count;
        struct peer *peer = &link->peers[index];

        if (!peer->in.pair)
            continue;
        err = read_frame(peer, message, size);
        if (!err) {
            *member = index;
            link->next_peer = index + 1;
            return CN_OK;
        }
        if (err != CN_EAGAIN)
            close_channel(&peer->in);
    }
    return CN_EAGAIN;
}

static cn_err link_send(struct cn_peer_link *base, uint32_t member, const void *message,
                        size_t size)
{
    struct peer_link *link = (struct peer_link *)base;
    struct peer *peer;
    struct frame *frame;

    if (member >= link->pairs.count || member == link->pairs.self || size == 0 ||
        size > CN_PEER_MESSAGE_MAX)
        return CN_ERANGE;
    peer = &link->peers[member];
    if (peer->queue_count == QUEUE) {
        peer->queue_begin = (peer->queue_begin + 1) % QUEUE;
        peer->queue_count--;
    }
    frame = &peer->queue[(peer->queue_begin + peer->queue_count++) % QUEUE];
    cn_put_u16(frame->bytes, (uint16_t)size);
    memcpy(frame->bytes + FRAME_HEADER, message, size);
    frame->size = FRAME_HEADER + size;
    drive_out(link, member, cn_platform_now_ms());
    return CN_OK;
}

static int link_descriptor(const struct cn_peer_link *base)
{
    return ((const struct peer_link *)base)->epoll_fd;
}

static void link_close(struct cn_peer_link *base)
{
    struct peer_link *link = (struct peer_link *)base;

    if (!link)
        return;
    for (int i = 0; i < STRANGERS; i++)
        close_channel(&link->strangers[i]);
    for (uint32_t i = 0; i < CN_GROUP_MAX; i++) {
        close_channel(&link->peers[i].in);
        close_channel(&link->peers[i].out);
    }
    if (link->listener >= 0)
        close(link->listener);
    if (link->epoll_fd >= 0)
        close(link->epoll_fd);
    free(link);
}

static const struct cn_peer_link_ops link_ops = {
    .close = link_close,
    .descriptor = link_descriptor,
    .send = link_send,
    .poll = link_poll,
};

cn_err cn_peer_tcp_open(const char *listen, const struct cn_member *members, uint32_t count,
                        uint32_t self, struct cn_peer_link **opened)
{
    struct peer_link *link = calloc(1, sizeof(*link));
    struct epoll_event event = {.events = EPOLLIN};
    cn_err err;

    assert(count >= 1 && count <= CN_GROUP_MAX && self < count);
    if (!link)
        return CN_ENOMEM;
    link->base.ops = &link_ops;
    link->listener = -1;
    link->pairs = (struct cn_pair_config){
        .members = members,
        .count = count,
        .self = self,
        .purpose = CN_PAIR_CONTROL,
        .handshake_ms = HANDSHAKE_MS,
        .silence_ms = SILENCE_MS,
        .port_offset = PORT_OFFSET,
    };
    for (uint32_t i = 0; i < count; i++)
        link->peers[i].retry_ms = RETRY_MS;
    link->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    err = link->epoll_fd < 0 ? CN_EIO : cn_pair_listen(listen, PORT_OFFSET, &link->listener);
    if (!err && epoll_ctl(link->epoll_fd, EPOLL_CTL_ADD, link->listener, &event))
        err = CN_EIO;
    if (err) {
        link_close(&link->base);
        return err;
    }
    *opened = &link->base;
    return CN_OK;
}
