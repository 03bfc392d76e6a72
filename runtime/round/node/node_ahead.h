// node_ahead.h - notices that this board holds a newer version of the run than the aggregator.
//
// That happens when the gateway's state was restored from a backup. The board then waits until the
// aggregator's rounds catch up, or for a new lineage (docs/backup.md). Pure decisions: the node
// reports. Threading: none.
#pragma once

#include <stdbool.h>

#include "runtime/port/link.h"
#include "runtime/round/upkeep/progress.h"

struct cn_node_ahead {
    uint64_t since_ms;         // when the aggregator was first seen to be older; 0: it is not
    bool told;                 // cn_node_ahead_tell has returned true
    uint32_t lineage, version; // the board's
    uint32_t news_lineage, news_version; // the aggregator's
};

// Takes the aggregator's news of the round, while the board works on that run.
void cn_node_ahead_hear(struct cn_node_ahead *ahead, const struct cn_progress *progress,
                        const struct cn_round_info *news, uint64_t now_ms);

// Returns true once, when the aggregator has been older for 2 s. A message that was overtaken by a
// newer one does not last that long.
bool cn_node_ahead_tell(struct cn_node_ahead *ahead, uint64_t now_ms);
