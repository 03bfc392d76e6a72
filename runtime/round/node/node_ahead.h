// node_ahead.h - notices that the aggregator's round is older than what this board holds of its
// run.
//
// That is so when the gateway's state was restored from a backup: the board waits for rounds that
// come, or for a new lineage (docs/backup.md). Pure decisions: the node tells. Threading: none.
#pragma once

#include <stdbool.h>

#include "runtime/port/link.h"
#include "runtime/round/upkeep/progress.h"

struct cn_node_ahead {
    uint64_t since_ms; // the round is older since then; 0: it is not
    bool told;
    uint32_t lineage, version; // that the board holds
    uint32_t news_lineage, news_version;
};

// Takes what the aggregator says of the round, while the board works on that run.
void cn_node_ahead_hear(struct cn_node_ahead *ahead, const struct cn_progress *progress,
                        const struct cn_round_info *news, uint64_t now_ms);

// True once, when the round has been older for 2 s: no message that was overtaken.
bool cn_node_ahead_tell(struct cn_node_ahead *ahead, uint64_t now_ms);
