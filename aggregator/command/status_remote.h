// status_remote.h - the status as a running aggregator tells it over a control socket, for users
// who may not read the state.
#pragma once

#include "aggregator/command/steer.h"

// Prints the run, what needs a person, and each board; with json the answer as it is. Returns the
// exit code.
int cn_status_remote_print(struct cn_steer *steer, const char *profile, bool json);
