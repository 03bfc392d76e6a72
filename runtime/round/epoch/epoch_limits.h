// epoch_limits.h - what a member does not believe the leader or another member.
//
// A group's members hear of rounds and versions from their leader. A stolen board that leads could
// name a round far in the future: the others would store it, and wait for it even without that
// board. So a board compares with what it has heard itself. Each looks at the aggregator's round
// at the end of a round, at most every 5 s (node_keys.h). What is within these limits and still
// wrong is given up after a while (node_ahead.h). Threading: the worker thread of a node.
#pragma once

#include "runtime/round/epoch/epoch.h"
#include "runtime/round/epoch/epoch_command.h"

// Rounds that the group may be ahead of what this board has just heard itself, and how many more
// for each second since then: rounds can be quick, and the board's own way to the aggregator cut.
#define CN_EPOCH_AHEAD_MAX 64
#define CN_EPOCH_AHEAD_PER_S 50
// Older news says nothing.
#define CN_EPOCH_NEWS_MS 20000

// Returns the newest round at which the group can be, and the newest version that it can have.
uint32_t cn_epoch_newest_round(struct cn_epoch *epoch);

// Logs that the member of this rank names a round or a version above most.
void cn_epoch_disbelieve(const struct cn_epoch *epoch, uint32_t rank, uint32_t most);

// Returns whether this member may carry out the leader's command. Logs rounds and versions that it
// does not believe; no honest leader sends the other commands that are refused.
bool cn_epoch_may_obey(struct cn_epoch *epoch, const struct cn_epoch_command *command);
