// peer_hello.h - lets members of a group that have all moved find each other on their LAN.
//
// A board that listens at all of its addresses and misses a member calls it by a broadcast
// (GROUP.md, "Members that move"). A call is a hint, proven by the pair's key; the session made at
// its address proves the rest. IPv4 only. Threading: one thread (the owner). Nothing blocks.
#pragma once

#include <stdbool.h>

#include "runtime/port/collective.h"

#define CN_PEER_HELLO_PORT 5685 // UDP port of calls
#define CN_PEER_HELLO_MAX 768   // bytes of a call

struct cn_peer_hello {
    const struct cn_member *members; // borrowed
    uint32_t count, self;
    char port[6];    // port of this board's group.listen
    int socket;      // -1: the board does not listen at all addresses, or the port is taken
    uint32_t calls;  // since this board began to miss a member
    uint64_t due_ms; // time of the next call
};

// Initialises hello. listen is "host:port". A port that is taken is only a warning.
void cn_peer_hello_init(struct cn_peer_hello *hello, const char *listen,
                        const struct cn_member *members, uint32_t count, uint32_t self);
void cn_peer_hello_deinit(struct cn_peer_hello *hello);

// Calls the members when a call is due. missing: this board misses one. Call this at each poll.
void cn_peer_hello_step(struct cn_peer_hello *hello, bool missing, uint64_t now_ms);

// Takes the next call of a member and the address that it gives. Returns false when there is none.
bool cn_peer_hello_hear(struct cn_peer_hello *hello, uint32_t *member,
                        char address[CN_ADDRESS_SIZE]);

// Encodes this board's call from the address host, with a final zero. Returns its size without the
// zero; 0 after an error.
size_t cn_peer_hello_encode(const struct cn_peer_hello *hello, const char *host,
                            char text[CN_PEER_HELLO_MAX]);

// Decodes any bytes. Returns false for anything except another member's call to this board.
bool cn_peer_hello_decode(const struct cn_peer_hello *hello, const char *bytes, size_t size,
                          uint32_t *member, char address[CN_ADDRESS_SIZE]);
