// epoch_heal.h - at the beginning of an epoch all members take the state that the group goes on
// with.
#pragma once

#include "runtime/round/epoch.h"

// The view's source gives its state to all others.
cn_err cn_epoch_heal(struct cn_epoch *epoch);
