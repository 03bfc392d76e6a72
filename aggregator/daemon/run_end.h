// run_end.h - what a running aggregator says when the run of its profile is over and it stays.
#pragma once

#include "aggregator/daemon/daemon.h"

// Tells the end of the run once, with its summary, if the program stays after it: for other jobs,
// or because stay asks for it. Later it tells when the last of the other jobs is over. Call it
// after each tick.
cn_err cn_run_end_tell(struct cn_daemon *daemon, const struct cn_run_state *state, bool stay);
