// replay_without.h - recomputes versions without the updates of a group, and says what that is
// worth.
#pragma once

#include "aggregator/daemon/setup.h"

// Prints a line for each version that the group has a part in: whether what was computed without it
// is exact or approximate. Stores nothing. Updates of the group for versions before from stay in.
// Returns the exit code.
int cn_replay_without(struct cn_setup *setup, const char *group, uint32_t from);
