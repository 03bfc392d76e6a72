// epoch_heal.h - gives all members, at the start of an epoch, the state with which the group
// continues.
//
// A member that holds the sums of a step that another member has applied applies them too
// (recovery.h). Remaining differences are taken from one member in pieces, whose digests are
// compared first. A member that has most of the state, or a part from a transfer that was cut off,
// takes only the rest. Members that lack nothing take no part. Nothing would be gained by training
// meanwhile, because the weights change with every step.
#pragma once

#include "runtime/round/epoch/epoch.h"

#define CN_HEAL_PIECE ((size_t)1 << 20) // bytes of a piece

cn_err cn_epoch_heal(struct cn_epoch *epoch);
