#include "runtime/group/ranks.h"

// Ids of the sets that a set is divided into; job sets have ids below.
#define TOGETHER_IDS 1000
#define ALIKE_IDS 2000
#define ALL_ID 3000

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
    ranks->all = (struct cn_set){.id = ALL_ID + set->id, .size = ranks->dp_size};
    for (uint32_t p = 0; p < ranks->dp_size; p++)
        ranks->all.ranks[p] = set->ranks[p];
    ranks->idle = place >= ranks->dp_size;
    if (ranks->idle)
        return CN_OK;
    ranks->dp_rank = place;
    ranks->replica = place / shards;
    ranks->shard = place % shards;
    ranks->together = (struct cn_set){.id = TOGETHER_IDS + ranks->replica, .size = shards};
    for (uint32_t s = 0; s < shards; s++)
        ranks->together.ranks[s] = set->ranks[ranks->replica * shards + s];
    ranks->alike = (struct cn_set){.id = ALIKE_IDS + ranks->shard, .size = ranks->replicas};
    for (uint32_t r = 0; r < ranks->replicas; r++)
        ranks->alike.ranks[r] = set->ranks[r * shards + ranks->shard];
    return CN_OK;
}
