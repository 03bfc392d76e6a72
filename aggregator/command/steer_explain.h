// steer_explain.h - says how to steer a run whose aggregator was not found by its socket.
#pragma once

#include "runtime/profile/profile.h"

// Prints what to do when an aggregator runs for the profile and its socket is elsewhere. Returns
// whether it printed something.
bool cn_steer_explain(const struct cn_settings *settings);
