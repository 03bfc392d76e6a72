// node_ahead.h - notices that what this board holds is not of the aggregator's run.
//
// It holds a newer version than the aggregator when the gateway's state was restored from a backup.
// It then waits until the aggregator's rounds catch up, or for a new lineage (docs/backup.md). A
// round that the aggregator has not opened, with a version that it has, came from a member of the
// group, and so did another model as one of its versions. No news would change these, so the board
// gives them up. Pure decisions: the node acts. Threading: none.
#pragma once

#include <stdbool.h>

#include "runtime/port/link.h"
#include "runtime/round/upkeep/progress.h"

struct cn_node_ahead {
    uint64_t since_ms;    // when the aggregator was first seen to be older; 0: it is not
    uint32_t round, held; // the board's round and version at that time
    uint64_t asked_ms;    // when cn_node_ahead_asks returned true; 0: not yet
    bool restored;        // the aggregator's version has been older: it was restored
    // What the board holds is not of the aggregator's run: a round that it has not opened; another
    // model as its version, though it was not restored.
    bool false_round, other_model;
    bool told;                           // cn_node_ahead_tell has returned true
    uint32_t lineage, version;           // the board's
    uint32_t news_lineage, news_version; // the aggregator's
};

// Takes the aggregator's news of the round, while the board works on that run.
void cn_node_ahead_hear(struct cn_node_ahead *ahead, const struct cn_progress *progress,
                        const struct cn_round_info *news, uint64_t now_ms);

// Compares with the last news once more: the state may be known later than the news. Only for a
// board that watches the round.
void cn_node_ahead_suspect(struct cn_node_ahead *ahead, const struct cn_progress *progress,
                           const struct cn_round_info *news, uint64_t now_ms);

// Returns true once, when the aggregator's version has been older for 2 s. A message that was
// overtaken by a newer one does not last that long.
bool cn_node_ahead_tell(struct cn_node_ahead *ahead, uint64_t now_ms);

// Returns true, at most every 10 s, when the board must ask for the round again: the link reports a
// round only when it changes, and what lasts must be told twice.
bool cn_node_ahead_asks(struct cn_node_ahead *ahead, uint64_t now_ms);
