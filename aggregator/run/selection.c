#include "aggregator/run/selection.h"

#include <stdlib.h>
#include <string.h>

struct candidate {
    uint8_t rank[CN_DIGEST_SIZE];
    const struct cn_roster_group *group;
    uint32_t faulty; // boards of the group that report a fault
    struct cn_ledger_turn last;
};

static bool is_live(const struct cn_roster_group *group, uint64_t now_ms, uint64_t live_ms)
{
    return cn_roster_may_invite(group) && group->heard_ms != 0 &&
           now_ms - group->heard_ms <= live_ms;
}

uint32_t cn_selection_expected(const struct cn_roster *roster, uint64_t begun_ms, uint64_t live_ms)
{
    size_t count;
    uint32_t expected = 0;
    const struct cn_roster_group *groups = cn_roster_groups(roster, &count);
    for (size_t i = 0; i < count; i++) {
        bool came = groups[i].heard_ms && groups[i].heard_ms + live_ms >= begun_ms;
        expected += cn_roster_may_invite(&groups[i]) && (begun_ms == 0 || came);
    }
    return expected;
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
    cn_sha256_add(&sha, candidate->group->name, strlen(candidate->group->name));
    cn_sha256_finish(&sha, candidate->rank);
}

static bool cannot_train(const struct candidate *candidate)
{
    return candidate->faulty >= candidate->group->boards;
}

static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *first = a, *second = b;
    int order = (int)cannot_train(first) - (int)cannot_train(second);
    if (!order)
        order = (first->last.round > second->last.round) - (first->last.round < second->last.round);
    if (!order)
        order = (int)second->last.kept - (int)first->last.kept;
    return order ? order : memcmp(first->rank, second->rank, CN_DIGEST_SIZE);
}

// Says whether the newest that the gateway knows of a board is that it cannot train.
static bool is_faulty(const struct cn_roster_board *board, uint64_t now_ms)
{
    const struct cn_fault *fault = &board->fault;
    const struct cn_board_health *health = &board->health;
    if (board->enrolled.revoked)
        return false;
    if (cn_board_health_is_fresh(health, now_ms) && health->told_ms >= fault->told_ms)
        return health->said.error[0] != '\0';
    return fault->told_ms && !fault->in_doubt;
}

static void count_faulty(const struct cn_selection *selection, struct candidate *candidates,
                         size_t found)
{
    size_t count;
    const struct cn_roster_board *boards = cn_roster_boards(selection->roster, &count);
    for (size_t b = 0; b < count; b++)
        for (size_t i = 0; is_faulty(&boards[b], selection->now_ms) && i < found; i++)
            candidates[i].faulty +=
                strcmp(candidates[i].group->name, boards[b].enrolled.group) == 0;
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
        candidates[*found].group = &groups[i];
        err = cn_ledger_last_turn(selection->ledger, selection->round, groups[i].name,
                                  &candidates[*found].last);
        if (err)
            return err;
        make_rank(selection, &candidates[(*found)++]);
    }
    count_faulty(selection, candidates, *found);
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
        err = cn_ledger_select(selection->ledger, selection->round, candidates[i].group->name);
        if (!err)
            (*invited)++;
    }
    free(candidates);
    return err;
}
