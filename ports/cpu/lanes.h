// lanes.h - a fixed set of threads that all do the same work, each on its own share.
//
// Lane 0 is the caller. Each other lane is pinned to a processor of its own, because the scheduler
// otherwise tends to wake it on the caller's. Between runs a lane spins for about 100 us, yields,
// then sleeps, so that neither an idle trainer nor a busy machine wastes processor time. With fewer
// processors than lanes, no lane is pinned or spins.
//
// Threading: one thread opens, runs and closes.
#pragma once

#include <stdint.h>

#include "runtime/base/error.h"

struct cpu_lanes;

// Starts count - 1 threads. CN_ENOMEM.
cn_err cpu_lanes_open(uint32_t count, struct cpu_lanes **lanes);

// Ends the threads. NULL is allowed.
void cpu_lanes_close(struct cpu_lanes *lanes);

// Calls work(context, lane) on every lane and returns when all are done.
void cpu_lanes_run(struct cpu_lanes *lanes, void (*work)(void *context, uint32_t lane),
                   void *context);

// Waits, in the middle of a run, until all lanes have called it. Every lane must call it equally
// often.
void cpu_lanes_meet(struct cpu_lanes *lanes);
