// session_recompute.c - in stage 3, members compute the same activations again.
//
// A pass that computes activations again also needs the weights for them again. So the number and
// the order of its exchanges follow from what it computes again, which each board chooses by its
// memory limit. Members that make these exchanges together must therefore choose alike.
#include "runtime/base/log.h"
#include "runtime/engine/program/bucket_plan.h"
#include "runtime/group/purpose.h"
#include "runtime/round/session/session_private.h"

// Writes the names of the members that do not fit with what others compute again.
static void name_lacking(const struct cn_session *session, const int64_t *fitting,
                         enum cn_recompute level, char *text, size_t size)
{
    const struct cn_set *set = &session->plan.shard_set;
    uint32_t ranks = 0;

    for (uint32_t s = 0; s < set->size; s++)
        ranks |= (uint32_t) !(fitting[s] >> level & 1) << set->ranks[s];
    cn_session_name_ranks(session, ranks, text, size);
}

// Finds the least that fits all members, or the least that fits this board if there is none.
static bool find_level(const struct cn_session *session, const int64_t *fitting,
                       enum cn_recompute *level)
{
    uint32_t own = cn_trainer_plan(session->trainer)->fitting, common = own;

    for (uint32_t s = 0; s < session->plan.shards; s++)
        common &= (uint32_t)fitting[s];
    *level = (enum cn_recompute)__builtin_ctz(common ? common : own);
    return common != 0;
}

// Says why this board computes more again than it would alone, or that no choice fits all.
static void tell(const struct cn_session *session, const int64_t *fitting, bool found,
                 enum cn_recompute level)
{
    uint32_t own = (uint32_t)__builtin_ctz(cn_trainer_plan(session->trainer)->fitting);
    char names[128];

    name_lacking(session, fitting, found ? (enum cn_recompute)own : level, names, sizeof(names));
    if (!found)
        cn_log(CN_LOG_ERROR, "session",
               "memory.train_max of %s has no room for a step as this board does it, where %s; "
               "stage 3 needs one way for all that hold the model together",
               names, cn_recompute_text(level));
    else if (level > own)
        cn_log(CN_LOG_INFO, "session", "%s, as memory.train_max of %s needs it",
               cn_recompute_text(level), names);
}

cn_err cn_session_agree_recompute(struct cn_session *session, struct cn_collective *collective,
                                  bool *opened)
{
    const struct cn_step_plan *plan = &session->plan;
    int64_t fitting[CN_GROUP_MAX] = {0};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .set = &plan->shard_set,
                                            .data = fitting,
                                            .count = plan->shards,
                                            .fingerprint = CN_PURPOSE_RECOMPUTE};
    enum cn_recompute level;
    cn_err err;
    bool found;

    *opened = false;
    if (!plan->trains || plan->shards < 2 ||
        cn_trainer_stage(session->trainer) < (uint32_t)CN_STAGE_WEIGHTS)
        return CN_OK;
    fitting[plan->shard] = cn_trainer_plan(session->trainer)->fitting;
    err = collective->ops->run(collective, &call);
    if (err)
        return err;
    found = find_level(session, fitting, &level);
    tell(session, fitting, found, level);
    if (!found)
        return CN_ENOMEM;
    if (level == cn_trainer_plan(session->trainer)->recompute)
        return CN_OK;
    *opened = true;
    return cn_session_reopen_trainer(session, plan->shards, plan->stage, level);
}
