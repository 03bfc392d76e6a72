// peer_link.h - small authenticated messages between the members of a group.
//
// Messages are like datagrams: each arrives whole, once or not at all. The link names the sender,
// whose identity the pair's key proves. Membership uses this link; bulk data does not.
//
// Threading: one thread (the owner). Nothing blocks.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/port/collective.h"

#define CN_PEER_MESSAGE_MAX 512 // bytes

struct cn_peer_link; // a port embeds it as its first member

struct cn_peer_link_ops {
    void (*close)(struct cn_peer_link *link);

    // Returns a descriptor (epoll or socket) that is readable when poll has work. For timers, call
    // poll at least every 50 ms in any case. The link owns the descriptor.
    int (*descriptor)(const struct cn_peer_link *link);

    // Sends a message of at most CN_PEER_MESSAGE_MAX bytes to members[member] and connects first
    // where needed. CN_OK does not mean that the message arrived.
    cn_err (*send)(struct cn_peer_link *link, uint32_t member, const void *message, size_t size);

    // Sends and receives what is due. Returns CN_OK with one message and sets *member to its
    // sender. Returns CN_EAGAIN when there is none.
    cn_err (*poll)(struct cn_peer_link *link, uint32_t *member,
                   uint8_t message[CN_PEER_MESSAGE_MAX], size_t *size);

    // Returns the address "host:port" where a member answers: that of the list, or the one to which
    // the member has moved since. Valid until the next poll.
    const char *(*address)(const struct cn_peer_link *link, uint32_t member);
};

struct cn_peer_link {
    const struct cn_peer_link_ops *ops;
};
