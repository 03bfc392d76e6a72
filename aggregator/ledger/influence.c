#include "aggregator/ledger/influence.h"

#include <stdlib.h>

#include "aggregator/ledger/ancestry.h"

static cn_err has_sent(struct cn_ledger *ledger, const char *group, uint32_t round, bool *sent)
{
    struct cn_ledger_contribution contribution;
    cn_err err = cn_ledger_find_part(ledger, round, group, &contribution);
    *sent = !err;
    return err == CN_ENOTFOUND ? CN_OK : err;
}

// Says whether version number has something of the group, from what is known of those before it.
static cn_err follow(struct cn_ledger *ledger, uint32_t number, struct cn_influence *influence)
{
    uint32_t parent;
    bool ruled;
    cn_err err = cn_ancestry_parent(ledger, number, &parent, &ruled);
    if (err)
        return err;
    influence->touched[number] = influence->touched[parent] || (!ruled && influence->sent[number]);
    if (influence->touched[number] && !influence->first)
        influence->first = number;
    return CN_OK;
}

cn_err cn_influence_load(struct cn_ledger *ledger, const char *group, uint32_t from,
                         struct cn_influence *influence)
{
    struct cn_ledger_version newest;
    struct cn_ledger_round round;
    *influence = (struct cn_influence){0};
    cn_err err = cn_ledger_newest_version(ledger, &newest);
    if (err)
        return err;
    influence->count = newest.number + 1;
    influence->touched = calloc(influence->count, sizeof(bool));
    influence->sent = calloc(influence->count, sizeof(bool));
    if (!influence->touched || !influence->sent)
        return CN_ENOMEM;
    for (uint32_t number = 1; number < influence->count && !err; number++) {
        if (number >= from)
            err = has_sent(ledger, group, number, &influence->sent[number]);
        if (!err)
            err = follow(ledger, number, influence);
    }
    if (!err)
        err = cn_ledger_newest_round(ledger, &round);
    if (!err && round.number > newest.number)
        err = has_sent(ledger, group, round.number, &influence->in_round);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

void cn_influence_deinit(struct cn_influence *influence)
{
    free(influence->touched);
    free(influence->sent);
    *influence = (struct cn_influence){0};
}
