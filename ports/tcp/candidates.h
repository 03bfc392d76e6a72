// candidates.h - accepted connections that have not proved a key yet, bounded by their source.
//
// A source is an IPv4 address, or a /64 of IPv6: what one host may choose from. When all places are
// taken, the source that has most of them gives up its oldest one. So a host that connects again
// and again ends its own connections, not those of members. Threading: none.
#pragma once

#include "ports/tcp/pair.h"

#define CN_CANDIDATES 16
#define CN_CANDIDATES_SOURCE 16 // bytes of a source

// A zeroed struct is empty.
struct cn_candidates {
    struct cn_pair *pairs[CN_CANDIDATES]; // NULL: free
    uint8_t sources[CN_CANDIDATES][CN_CANDIDATES_SOURCE];
    uint64_t since[CN_CANDIDATES]; // the number of the connection
    uint64_t count;                // connections so far
};

// Returns the place for one more connection of a source: a free one, or that of the pair to drop.
size_t cn_candidates_place(const struct cn_candidates *candidates,
                           const uint8_t source[CN_CANDIDATES_SOURCE]);

// Adds an accepted pair, which it takes. Closes another one if all places are taken.
void cn_candidates_add(struct cn_candidates *candidates, struct cn_pair *pair);

// Closes all pairs.
void cn_candidates_close(struct cn_candidates *candidates);
