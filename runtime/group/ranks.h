// ranks.h - the places of a group's members: replicas of shards, or replicas of a pipeline's parts.
//
// With R replicas of S shards each, place = r * S + s, where r is the replica and s the shard:
// dp_rank = dp_replicate.rank * dp_shard.size + dp_shard.local_rank. Each place draws samples of
// its own, by dp_rank: two shards of one replica never read the same samples. The members of a
// replica hold one whole state together; members with the same shard hold the same part of it.
//
// With a model cut into P parts, place = (p * R + r) * S + s, where p is the part. The members with
// the same r and s are a chain: each micro-batch passes through all of them. So a chain draws
// samples as one place: dp_rank = r * S + s. The S members with the same p and r hold the state of
// part p together. Threading: none; pure.
#pragma once

#include <stdbool.h>

#include "runtime/port/collective.h"

struct cn_ranks {
    uint32_t replicas, shards; // replicas that work; shards of each
    uint32_t replica, shard;   // this board's, unless it is idle
    uint32_t dp_rank, dp_size; // dp_size = replicas * shards
    bool idle;                 // this board is not in the set, or not in a complete replica
    struct cn_set together;    // members of the board's replica, by shard
    struct cn_set alike;       // members with the same shard, one in each replica
    struct cn_set all;         // members that work, by dp_rank
};

// Returns the set of the ranks whose bits are set. Its id follows from the bits, so that one id
// stands for one set.
struct cn_set cn_ranks_set(uint32_t bits);

// Places the members of a set, in its order, in as many complete replicas of shards as possible.
// rank is this board's. Returns CN_EINVAL when shards is 0 or more than the set has members.
cn_err cn_ranks_place(const struct cn_set *set, uint32_t shards, uint32_t rank,
                      struct cn_ranks *ranks);

// Returns the number of the first micro-batch of place dp_rank. The micro-batches of a step are
// numbered through all places; micro[p] of them belong to place p.
uint32_t cn_ranks_first(const uint32_t *micro, uint32_t dp_rank);

// The chains that a job wants.
struct cn_chain_wish {
    uint32_t parts;    // parts of a chain
    uint32_t shards;   // members that hold the state of a part together; 0 is 1
    uint32_t replicas; // most replicas; 0: no limit
};

// Returns how many chains work among `count` members: replicas times *shards. With fewer members
// than parts times the shards wanted there is one replica, of as many shards as possible. Returns 0
// when there are fewer members than parts, or no parts.
uint32_t cn_ranks_chains(const struct cn_chain_wish *wish, uint32_t count, uint32_t *shards);

// A board's place in a pipeline.
struct cn_chain_place {
    uint32_t parts, chains;       // parts of a chain; chains that work
    uint32_t shards;              // members that hold the state of a part together
    uint32_t part, number;        // this board's part, and the number of its chain: its dp_rank
    uint32_t shard;               // which share of the part it holds: its index in together
    bool idle;                    // this board is not in the set, or left over
    uint32_t ranks[CN_GROUP_MAX]; // by place, of the members that work
    struct cn_set chain;          // members of the board's chain
    struct cn_set alike;          // members that hold the board's part
    struct cn_set together;       // of these, the members of the board's replica
    struct cn_set same;           // of alike, the members with the same share, one in each replica
    struct cn_set all;            // members that work
};

// Places `count` ranks, in the order given, in as many complete chains as possible. rank is this
// board's. Returns CN_EINVAL when no chain works.
cn_err cn_ranks_chain(const uint32_t *order, uint32_t count, const struct cn_chain_wish *wish,
                      uint32_t rank, struct cn_chain_place *place);

// Returns the place, among `count` members, of the one with which a round's order of members
// begins when each chain trains on the samples of its first member. From round to round it moves on
// by the number of chains, so that all members have as many turns. Rounds count from 1.
uint32_t cn_ranks_turn(uint32_t count, uint32_t chains, uint32_t round);

// Returns the number of turns that the member with the turn of a chain had in earlier rounds, if
// the members and chains were the same.
uint64_t cn_ranks_turns_before(uint32_t count, uint32_t chains, uint32_t round, uint32_t chain);

// Returns the rank of the member of the board's chain that holds a part.
uint32_t cn_ranks_of_part(const struct cn_chain_place *place, uint32_t part);

// Returns the members of the board's chain that hold the parts in bits (bit p for part p).
struct cn_set cn_ranks_parts(const struct cn_chain_place *place, uint32_t bits);

// Returns whether a sum over the holders of these parts adds in the same order in each chain. It
// adds in the order of the ranks, and chains may have their parts in other orders of ranks.
bool cn_ranks_add_alike(const struct cn_chain_place *place, uint32_t bits);
