#include "runtime/round/node/node_ahead.h"

#include <string.h>

#define LASTING_MS 2000
#define FALSE_MS 10000 // longer than any news of the leader can be ahead of the board's own

static bool has_older_version(const struct cn_round_info *news, const struct cn_progress *progress)
{
    return news->lineage < progress->lineage ||
           (news->lineage == progress->lineage && news->version < progress->version);
}

static bool is_older(const struct cn_round_info *news, const struct cn_progress *progress)
{
    return has_older_version(news, progress) ||
           (news->lineage == progress->lineage && news->round < progress->round);
}

static bool is_other_version(const struct cn_round_info *news, const struct cn_progress *progress)
{
    return news->lineage == progress->lineage && news->version == progress->version &&
           memcmp(news->version_digest, progress->base_digest, CN_DIGEST_SIZE) != 0;
}

void cn_node_ahead_hear(struct cn_node_ahead *ahead, const struct cn_progress *progress,
                        const struct cn_round_info *news, uint64_t now_ms)
{
    if (news->run != progress->run || progress->phase == CN_PHASE_EMPTY || !progress->lineage) {
        *ahead = (struct cn_node_ahead){0};
        return;
    }
    if (!is_older(news, progress)) {
        bool other = is_other_version(news, progress) && !ahead->restored;

        *ahead = (struct cn_node_ahead){.other_model = other, .restored = ahead->restored};
        return;
    }
    // While rounds follow one another, each may be known to the group before it is known here.
    if (!ahead->since_ms || (news->lineage == progress->lineage && news->round >= ahead->round &&
                             news->version >= ahead->held))
        *ahead = (struct cn_node_ahead){.since_ms = now_ms,
                                        .round = progress->round,
                                        .held = progress->version,
                                        .restored = ahead->restored};
    ahead->other_model = false;
    ahead->false_round = !has_older_version(news, progress) && now_ms - ahead->since_ms >= FALSE_MS;
    if (has_older_version(news, progress) && now_ms - ahead->since_ms >= LASTING_MS)
        ahead->restored = true;
    ahead->lineage = progress->lineage;
    ahead->version = progress->version;
    ahead->news_lineage = news->lineage;
    ahead->news_version = news->version;
}

void cn_node_ahead_suspect(struct cn_node_ahead *ahead, const struct cn_progress *progress,
                           const struct cn_round_info *news, uint64_t now_ms)
{
    if (!ahead->since_ms && news->run == progress->run && progress->phase != CN_PHASE_EMPTY &&
        news->lineage == progress->lineage && news->version >= progress->version &&
        news->round < progress->round)
        cn_node_ahead_hear(ahead, progress, news, now_ms);
}

bool cn_node_ahead_tell(struct cn_node_ahead *ahead, uint64_t now_ms)
{
    bool older = ahead->news_lineage < ahead->lineage ||
                 (ahead->news_lineage == ahead->lineage && ahead->news_version < ahead->version);

    if (!ahead->since_ms || !older || ahead->told || now_ms - ahead->since_ms < LASTING_MS)
        return false;
    ahead->told = true;
    return true;
}

bool cn_node_ahead_asks(struct cn_node_ahead *ahead, uint64_t now_ms)
{
    if (!ahead->since_ms || now_ms - ahead->since_ms < FALSE_MS ||
        now_ms - ahead->asked_ms < FALSE_MS)
        return false;
    ahead->asked_ms = now_ms;
    return true;
}
