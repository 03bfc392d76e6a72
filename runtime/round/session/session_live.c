// session_live.c - facts of boards that change while they train: charge and bytes left.
//
// The members tell each other these facts at the beginning of each epoch and round, if a rule of a
// set needs one. So all members decide by the same values during the round.
#include "runtime/group/purpose.h"
#include "runtime/round/session/session_private.h"

static bool speaks_of_live(const struct cn_session_sets *sets)
{
    for (uint32_t i = 0; i < sets->rules.count; i++)
        if (cn_rule_needs_live(&sets->rules.rules[i].rule))
            return true;
    return false;
}

cn_err cn_session_share_live(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_sets *sets = session->planning.sets;
    struct cn_live_facts *live = session->config.live;
    int64_t words[CN_GROUP_MAX] = {0};
    const struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_ALL_GATHER,
        .type = CN_INT64,
        .data = words,
        .count = sets->view.size,
        .fingerprint = CN_PURPOSE_SET_LIVE,
    };

    if (!speaks_of_live(sets) || sets->view.size == 1)
        return CN_OK;
    if (live)
        words[sets->view.rank] =
            (int64_t)atomic_load(&live->battery) << 32 | atomic_load(&live->left_kib);
    cn_err err = collective->ops->run(collective, &call);
    for (uint32_t r = 0; !err && r < sets->view.size; r++) {
        sets->facts[r].battery = (uint8_t)(words[r] >> 32);
        sets->facts[r].left_kib = (uint32_t)words[r];
    }
    return err;
}
