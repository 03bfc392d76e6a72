#include "aggregator/run/selection.h"

#include <stdlib.h>
#include <string.h>

struct candidate {
    uint8_t rank[CN_DIGEST_SIZE];
    const char *group;
};

static bool is_live(const struct cn_roster_group *group, uint64_t now_ms, uint64_t live_ms)
{
    return group->heard_ms != 0 && now_ms - group->heard_ms <= live_ms;
}

uint32_t cn_selection_live(const struct cn_roster *roster, uint64_t now_ms, uint64_t live_ms)
{
    size_t count;
    uint32_t live = 0;
    const struct cn_roster_group *groups = cn_roster_groups(roster, &count);
    for (size_t i = 0; i < count; i++)
        live += is_live(&groups[i], now_ms, live_ms);
    return live;
}

static void make_rank(const struct cn_selection *selection, struct candidate *candidate)
{
    uint8_t seed[8], round[4];
    struct cn_sha256 sha;
    cn_put_u64(seed, selection->seed);
    cn_put_u32(round, selection->round);
    cn_sha256_init(&sha);
    cn_sha256_add(&sha, seed, sizeof(seed));
    cn_sha256_add(&sha, round, sizeof(round));
    cn_sha256_add(&sha, candidate->group, strlen(candidate->group));
    cn_sha256_finish(&sha, candidate->rank);
}

static int compare_candidates(const void *a, const void *b)
{
    return memcmp(((const struct candidate *)a)->rank, ((const struct candidate *)b)->rank,
                  CN_DIGEST_SIZE);
}

static cn_err collect(const struct cn_selection *selection, struct candidate *candidates,
                      size_t *found)
{
    size_t count;
    const struct cn_roster_group *groups = cn_roster_groups(selection->roster, &count);
    *found = 0;
    for (size_t i = 0; i < count; i++) {
        bool selected;
        if (!is_live(&groups[i], selection->now_ms, selection->live_ms))
            continue;
        cn_err err =
            cn_ledger_is_selected(selection->ledger, selection->round, groups[i].name, &selected);
        if (err)
            return err;
        if (selected)
            continue;
        candidates[*found].group = groups[i].name;
        make_rank(selection, &candidates[(*found)++]);
    }
    qsort(candidates, *found, sizeof(*candidates), compare_candidates);
    return CN_OK;
}

cn_err cn_selection_invite(const struct cn_selection *selection, uint32_t count, uint32_t *invited)
{
    size_t groups, found = 0;
    *invited = 0;
    cn_roster_groups(selection->roster, &groups);
    struct candidate *candidates = calloc(groups + 1, sizeof(*candidates));
    if (!candidates)
        return CN_ENOMEM;
    cn_err err = collect(selection, candidates, &found);
    for (size_t i = 0; i < found && *invited < count && !err; i++) {
        err = cn_ledger_select(selection->ledger, selection->round, candidates[i].group);
        if (!err)
            (*invited)++;
    }
    free(candidates);
    return err;
}
