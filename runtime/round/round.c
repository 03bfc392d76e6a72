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
    uint64_t oldest = news->oldest ? news->oldest : news->round;

    return oldest > held->round || news->decided_round > held->round ||
           news->state == CN_ROUND_ENDED;
}

static void plan_decision(const struct cn_checkpoint *held, const struct cn_round_info *news,
                          struct cn_decision *decision)
{
    // News of a round that closed without this group does not mean a refusal. Only a receipt does.
    decision->verdict = news->decided_round == held->round && news->decided_accepted
                            ? CN_VERDICT_ACCEPTED
                            : CN_VERDICT_LATE;
    if (news->decided_round < held->round ||
        (news->decided_round == held->round && !news->decided_accepted))
        return;
    decision->round = news->decided_round;
    if (news->decided_accepted)
        memcpy(decision->digest, news->decided_digest, CN_DIGEST_SIZE);
}

static void plan_outbox(const struct cn_checkpoint *held, const struct cn_round_info *news,
                        struct cn_round_plan *plan)
{
    plan->action = CN_DO_SEND;
    if (!news || (news->decided_round != held->round && !round_is_over(held, news)))
        return;
    plan->action = CN_DO_DECIDE;
    plan_decision(held, news, &plan->decision);
}

enum cn_outcome cn_round_outcome(const struct cn_decision *decision, uint32_t round,
                                 const uint8_t frame_digest[CN_DIGEST_SIZE])
{
    if (decision->round < round || round == 0)
        return CN_OUTCOME_NOTHING;
    return decision->round == round && same_digest(decision->digest, frame_digest)
               ? CN_OUTCOME_COUNTED
               : CN_OUTCOME_OTHER;
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
        news = NULL; // older than the held state
    switch (held->phase) {
    case CN_PHASE_EMPTY:
    case CN_PHASE_BASE:
        if (!news)
            return;
        plan->action = idle_action(held, news);
        if (plan->action == CN_DO_BEGIN && news->decided_accepted) {
            plan->decision.round = news->decided_round;
            memcpy(plan->decision.digest, news->decided_digest, CN_DIGEST_SIZE);
        }
        return;
    case CN_PHASE_TRAIN:
        plan->action = CN_DO_STEP;
        if (!news || !round_is_over(held, news))
            return;
        plan->action = CN_DO_ABANDON;
        plan_decision(held, news, &plan->decision);
        return;
    case CN_PHASE_SEND:
        plan_outbox(held, news, plan);
        return;
    }
}

// Finds the frame that makes version number from its parent. Returns false when the news does not
// name it.
static bool find_delta(const struct cn_round_info *news, uint32_t number, uint64_t *size,
                       const uint8_t **digest)
{
    uint32_t entry = news->version - 1 - number;

    if (number == news->version) {
        *size = news->delta_size;
        *digest = news->delta_digest;
        return *size > 0;
    }
    if (number > news->version || entry >= CN_CHAIN_MAX)
        return false;
    *size = news->chain.sizes[entry];
    *digest = news->chain.digests[entry];
    return *size > 0;
}

// Adds the bytes of all deltas from a version to the newest one to *size. Returns false when some
// are missing.
static bool add_chain(const struct cn_round_info *news, uint32_t from, uint64_t *size)
{
    for (uint32_t number = news->version; number > from; number--) {
        const uint8_t *digest;
        uint64_t here;

        if (!find_delta(news, number, &here, &digest))
            return false;
        *size += here;
    }
    return true;
}

static void fetch_delta(const struct cn_round_info *news, uint32_t number,
                        struct cn_round_fetch *fetch)
{
    const uint8_t *digest;

    if (!find_delta(news, number, &fetch->size, &digest))
        return;
    fetch->delta = true;
    fetch->number = number;
    fetch->last = number == news->version;
    memcpy(fetch->digest, digest, CN_DIGEST_SIZE);
}

static void fetch_snapshot(const struct cn_round_info *news, struct cn_round_fetch *fetch)
{
    fetch->delta = true;
    fetch->number = news->snapshot.number;
    fetch->last = fetch->number == news->version;
    fetch->size = news->snapshot.size;
    memcpy(fetch->digest, news->snapshot.digest, CN_DIGEST_SIZE);
}

void cn_round_choose_fetch(const struct cn_checkpoint *held, const struct cn_round_info *news,
                           bool avoid_delta, struct cn_round_fetch *fetch)
{
    bool has_base = held->phase == CN_PHASE_BASE;
    uint32_t behind = news->version > held->version ? news->version - held->version : 0;
    const struct cn_snapshot *snapshot = &news->snapshot;
    bool follows = has_base && same_digest(held->base_digest, news->parent);
    uint64_t least = news->version_size, size = 0;

    *fetch =
        (struct cn_round_fetch){.number = news->version, .last = true, .size = news->version_size};
    memcpy(fetch->digest, news->version_digest, CN_DIGEST_SIZE);
    if (avoid_delta)
        return;
    if (has_base && (follows || behind > 1) &&
        add_chain(news, follows ? news->version - 1 : held->version, &size) &&
        (follows || size < least)) {
        least = size;
        fetch_delta(news, follows ? news->version : held->version + 1, fetch);
    }
    size = snapshot->size;
    if (snapshot->number && snapshot->number <= news->version &&
        (!has_base || snapshot->number > held->version) &&
        add_chain(news, snapshot->number, &size) && size < least)
        fetch_snapshot(news, fetch);
}

bool cn_round_leads_on(const struct cn_checkpoint *held, const struct cn_round_info *news,
                       const struct cn_round_fetch *begun)
{
    uint64_t size = 0;

    return begun->delta && begun->number < news->version &&
           (held->phase != CN_PHASE_BASE || begun->number > held->version) &&
           add_chain(news, begun->number, &size) && size < news->version_size;
}
