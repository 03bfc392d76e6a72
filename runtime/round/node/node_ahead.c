#include "runtime/round/node/node_ahead.h"

#define LASTING_MS 2000

static bool is_older(const struct cn_round_info *news, const struct cn_progress *progress)
{
    if (progress->phase == CN_PHASE_EMPTY || !progress->lineage)
        return false;
    return news->lineage < progress->lineage ||
           (news->lineage == progress->lineage && news->version < progress->version);
}

void cn_node_ahead_hear(struct cn_node_ahead *ahead, const struct cn_progress *progress,
                        const struct cn_round_info *news, uint64_t now_ms)
{
    if (!is_older(news, progress)) {
        *ahead = (struct cn_node_ahead){0};
        return;
    }
    if (!ahead->since_ms)
        ahead->since_ms = now_ms;
    ahead->lineage = progress->lineage;
    ahead->version = progress->version;
    ahead->news_lineage = news->lineage;
    ahead->news_version = news->version;
}

bool cn_node_ahead_tell(struct cn_node_ahead *ahead, uint64_t now_ms)
{
    if (!ahead->since_ms || ahead->told || now_ms - ahead->since_ms < LASTING_MS)
        return false;
    ahead->told = true;
    return true;
}
