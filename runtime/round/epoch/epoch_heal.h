// epoch_heal.h - at the beginning of an epoch all members get the state that the group goes on
// with.
//
// Who holds the sums of the step that another member has applied applies them, too (recovery.h).
// What differs then is taken from one member in pieces, whose digests are compared first: a member
// that has most of the state, or has a part of it from a transfer that was cut, takes only the
// rest. Members that lack nothing take no part in that. Weights change with every step, so nothing
// is gained by taking them while the others train.
#pragma once

#include "runtime/round/epoch/epoch.h"

#define CN_HEAL_PIECE ((size_t)1 << 20) // bytes

cn_err cn_epoch_heal(struct cn_epoch *epoch);
