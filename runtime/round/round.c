#include "runtime/round/round.h"

#include <string.h>

static bool same_digest(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, CN_DIGEST_SIZE) == 0;
}

static enum cn_round_action idle_action(const struct cn_checkpoint *held,
                                        const struct cn_round_info *news)
{
    bool has_base =
        held->phase != CN_PHASE_EMPTY && same_digest(held->base_digest, news->version_digest);

    if (!has_base)
        return CN_DO_FETCH;
    if (news->state == CN_ROUND_ENDED)
        return CN_DO_END;
    if (news->state == CN_ROUND_OPEN && news->invited && news->round > held->round)
        return CN_DO_BEGIN;
    return CN_DO_WAIT;
}

static bool round_is_over(const struct cn_checkpoint *held, const struct cn_round_info *news)
{
    return news->round > held->round || news->state == CN_ROUND_ENDED;
}

static void plan_outbox(const struct cn_checkpoint *held, const struct cn_round_info *news,
                        struct cn_round_plan *plan)
{
    if (news && news->decided_round == held->round) {
        plan->action = CN_DO_DECIDE;
        plan->verdict = news->decided_accepted ? CN_VERDICT_ACCEPTED : CN_VERDICT_REJECTED;
        memcpy(plan->accepted, news->decided_digest, CN_DIGEST_SIZE);
    } else if (news && round_is_over(held, news)) {
        plan->action = CN_DO_DECIDE;
        plan->verdict = CN_VERDICT_LATE;
    } else {
        plan->action = CN_DO_SEND;
    }
}

void cn_round_next(const struct cn_checkpoint *held, const struct cn_round_info *news,
                   struct cn_round_plan *plan)
{
    *plan = (struct cn_round_plan){.action = CN_DO_WAIT};
    if (news && (news->run != held->run || news->lineage > held->lineage)) {
        plan->action = CN_DO_RESET;
        return;
    }
    if (news && (news->lineage < held->lineage || news->round < held->round ||
                 news->version < held->version))
        news = NULL; // older than what we hold
    switch (held->phase) {
    case CN_PHASE_EMPTY:
    case CN_PHASE_BASE:
        if (news)
            plan->action = idle_action(held, news);
        return;
    case CN_PHASE_TRAIN:
        plan->action = news && round_is_over(held, news) ? CN_DO_ABANDON : CN_DO_STEP;
        return;
    case CN_PHASE_SEND:
        plan_outbox(held, news, plan);
        return;
    }
}

// Bytes of all deltas from the held version to the newest; 0 when they are not all there.
static uint64_t chain_size(const struct cn_checkpoint *held, const struct cn_round_info *news)
{
    uint32_t missing = news->version > held->version ? news->version - held->version : 0;
    uint64_t size = news->delta_size;

    if (missing < 2 || missing - 1 > CN_CHAIN_MAX || !news->delta_size)
        return 0;
    for (uint32_t i = 0; i < missing - 1; i++) {
        if (!news->chain.sizes[i])
            return 0;
        size += news->chain.sizes[i];
    }
    return size;
}

void cn_round_choose_fetch(const struct cn_checkpoint *held, const struct cn_round_info *news,
                           bool avoid_delta, struct cn_round_fetch *fetch)
{
    bool may_follow = !avoid_delta && held->phase == CN_PHASE_BASE && news->delta_size > 0;
    uint64_t chain = may_follow ? chain_size(held, news) : 0;
    uint32_t entry;

    *fetch =
        (struct cn_round_fetch){.number = news->version, .last = true, .size = news->version_size};
    memcpy(fetch->digest, news->version_digest, CN_DIGEST_SIZE);
    if (may_follow && same_digest(held->base_digest, news->parent)) {
        fetch->delta = true;
        fetch->size = news->delta_size;
        memcpy(fetch->digest, news->delta_digest, CN_DIGEST_SIZE);
    } else if (chain && chain < news->version_size) {
        entry = news->version - held->version - 2;
        fetch->delta = true;
        fetch->last = false;
        fetch->number = held->version + 1;
        fetch->size = news->chain.sizes[entry];
        memcpy(fetch->digest, news->chain.digests[entry], CN_DIGEST_SIZE);
    }
}
