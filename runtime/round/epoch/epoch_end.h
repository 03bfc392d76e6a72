// epoch_end.h - lets a group end with one member that knows that the run has ended.
//
// A member that returns when the gateway has left too cannot ask it, and may be the one that leads.
// Threading: the worker thread of a node.
#pragma once

#include "runtime/round/epoch/epoch.h"

// Sets epoch->over if a member knows that the run has ended: it heard so from the gateway, or
// epoch->over was true. Every member calls it.
cn_err cn_epoch_share_end(struct cn_epoch *epoch);

// Returns whether the leader, which has heard nothing of the round, is to end the run.
bool cn_epoch_is_over(const struct cn_epoch *epoch);
