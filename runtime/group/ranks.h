// ranks.h - the data-parallel places of a group's members: replicas of shards.
//
// With R replicas of S shards each, place = r * S + s, where r is the replica and s the shard:
// dp_rank = dp_replicate.rank * dp_shard.size + dp_shard.local_rank. A place draws samples of its
// own, so dp_rank counts all of them: two shards of one replica never read the same ones. The
// members of a replica hold one state together; those with the same shard hold the same part of it.
#pragma once

#include <stdbool.h>

#include "runtime/port/collective.h"

struct cn_ranks {
    uint32_t replicas, shards; // at work
    uint32_t replica, shard;   // of this board, when it is at work
    uint32_t dp_rank, dp_size; // dp_size = replicas * shards
    bool idle;                 // left over, its replica would not be complete; or not in the set
    struct cn_set together;    // the board's replica: its shards, in order
    struct cn_set alike;       // the boards with the same shard, one in each replica
    struct cn_set all;         // all at work, by dp_rank
};

// The set of the ranks whose bits are set. Its id follows from them, so that one id is one set.
struct cn_set cn_ranks_set(uint32_t bits);

// Places the members of a set, in its order, as many complete replicas of shards as there are. rank
// is this board's. CN_EINVAL when shards is 0 or more than the set has.
cn_err cn_ranks_place(const struct cn_set *set, uint32_t shards, uint32_t rank,
                      struct cn_ranks *ranks);

// The micro-batches of one step, numbered through all places: micro[p] of them are those of place
// p, and the first of place dp_rank has this number. Every number belongs to one place.
uint32_t cn_ranks_first(const uint32_t *micro, uint32_t dp_rank);
