#include "runtime/group/ranks.h"

#define SET_IDS 0x10000u // ids of sets start above; the whole group has id 0

struct cn_set cn_ranks_set(uint32_t bits)
{
    struct cn_set set = {.id = SET_IDS | bits};

    for (uint32_t r = 0; r < CN_GROUP_MAX; r++)
        if (bits >> r & 1)
            set.ranks[set.size++] = r;
    return set;
}

// Returns the members at places first, first + stride, ... of a list.
static struct cn_set pick(const uint32_t *ranks, uint32_t first, uint32_t stride, uint32_t count)
{
    uint32_t bits = 0;

    for (uint32_t i = 0; i < count; i++)
        bits |= 1u << ranks[first + i * stride];
    return cn_ranks_set(bits);
}

cn_err cn_ranks_place(const struct cn_set *set, uint32_t shards, uint32_t rank,
                      struct cn_ranks *ranks)
{
    uint32_t place = 0;

    *ranks = (struct cn_ranks){0};
    if (!shards || shards > set->size)
        return CN_EINVAL;
    while (place < set->size && set->ranks[place] != rank)
        place++;
    ranks->replicas = set->size / shards;
    ranks->shards = shards;
    ranks->dp_size = ranks->replicas * shards;
    ranks->all = pick(set->ranks, 0, 1, ranks->dp_size);
    ranks->idle = place >= ranks->dp_size;
    if (ranks->idle)
        return CN_OK;
    ranks->dp_rank = place;
    ranks->replica = place / shards;
    ranks->shard = place % shards;
    ranks->together = pick(set->ranks, ranks->replica * shards, 1, shards);
    ranks->alike = pick(set->ranks, ranks->shard, shards, ranks->replicas);
    return CN_OK;
}

uint32_t cn_ranks_first(const uint32_t *micro, uint32_t dp_rank)
{
    uint32_t first = 0;

    for (uint32_t p = 0; p < dp_rank; p++)
        first += micro[p];
    return first;
}

uint32_t cn_ranks_chains(const struct cn_chain_wish *wish, uint32_t count, uint32_t *shards)
{
    uint32_t most = wish->parts ? count / wish->parts : 0, replicas; // most members with one part

    *shards = wish->shards ? wish->shards : 1;
    if (!most)
        return 0;
    if (*shards > most)
        *shards = most;
    replicas = most / *shards;
    if (wish->replicas && replicas > wish->replicas)
        replicas = wish->replicas;
    return replicas * *shards;
}

// Finds which share of its part a board holds, and the members with the same share. A share is that
// of a member's place in a set of ranks, whatever their order in the chains.
static void find_share(const uint32_t *order, uint32_t rank, struct cn_chain_place *place)
{
    uint32_t first = place->part * place->chains, bits = 0;

    place->together =
        pick(order, first + place->number / place->shards * place->shards, 1, place->shards);
    while (place->together.ranks[place->shard] != rank)
        place->shard++;
    for (uint32_t c = 0; c < place->chains; c += place->shards) {
        struct cn_set replica = pick(order, first + c, 1, place->shards);

        bits |= 1u << replica.ranks[place->shard];
    }
    place->same = cn_ranks_set(bits);
}

cn_err cn_ranks_chain(const uint32_t *order, uint32_t count, const struct cn_chain_wish *wish,
                      uint32_t rank, struct cn_chain_place *place)
{
    uint32_t at = 0;

    *place = (struct cn_chain_place){.parts = wish->parts};
    place->chains = cn_ranks_chains(wish, count, &place->shards);
    if (!place->chains)
        return CN_EINVAL;
    while (at < count && order[at] != rank)
        at++;
    for (uint32_t p = 0; p < place->parts * place->chains; p++)
        place->ranks[p] = order[p];
    place->all = pick(order, 0, 1, place->parts * place->chains);
    place->idle = at >= place->all.size;
    if (place->idle)
        return CN_OK;
    place->part = at / place->chains;
    place->number = at % place->chains;
    place->chain = pick(order, place->number, place->chains, place->parts);
    place->alike = pick(order, place->part * place->chains, 1, place->chains);
    find_share(order, rank, place);
    return CN_OK;
}

// Turns are numbered through rounds and chains, and given to the members one after the other.
static uint64_t turn_number(uint32_t chains, uint32_t round, uint32_t chain)
{
    return (uint64_t)(round ? round - 1 : 0) * chains + chain;
}

uint32_t cn_ranks_turn(uint32_t count, uint32_t chains, uint32_t round)
{
    return (uint32_t)(turn_number(chains, round, 0) % count);
}

uint64_t cn_ranks_turns_before(uint32_t count, uint32_t chains, uint32_t round, uint32_t chain)
{
    return turn_number(chains, round, chain) / count;
}

uint32_t cn_ranks_of_part(const struct cn_chain_place *place, uint32_t part)
{
    return place->ranks[part * place->chains + place->number];
}

struct cn_set cn_ranks_parts(const struct cn_chain_place *place, uint32_t parts)
{
    uint32_t bits = 0;

    for (uint32_t p = 0; p < place->parts; p++)
        if (parts >> p & 1)
            bits |= 1u << cn_ranks_of_part(place, p);
    return cn_ranks_set(bits);
}

bool cn_ranks_add_alike(const struct cn_chain_place *place, uint32_t bits)
{
    if (__builtin_popcount(bits) < 3) // a sum of two numbers has one result
        return true;
    for (uint32_t p = 0; p < place->parts; p++)
        for (uint32_t q = p + 1; q < place->parts; q++) {
            const uint32_t *one = &place->ranks[p * place->chains];
            const uint32_t *other = &place->ranks[q * place->chains];

            if (!(bits >> p & 1) || !(bits >> q & 1))
                continue;
            for (uint32_t c = 1; c < place->chains; c++)
                if ((one[c] < other[c]) != (one[0] < other[0]))
                    return false;
        }
    return true;
}
