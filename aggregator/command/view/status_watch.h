// status_watch.h - "cairn-aggregator status --watch": the run on a terminal, drawn again and again.
#pragma once

#include <stdatomic.h>

#include "aggregator/daemon/setup.h"

// Draws the run each second until stop is set or the run is over. Standard output must be a
// terminal; one that cannot be drawn over gets a block of lines for each version. Returns the exit
// code.
int cn_status_watch(const struct cn_setup *setup, const atomic_bool *stop);
