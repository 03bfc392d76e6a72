// lanes.h - a fixed set of threads that all do the same piece of work on their own share.
//
// Lane 0 is the caller. The others are pinned, one for each processor, because the scheduler
// otherwise tends to wake them on the caller's. Between runs a lane spins for a few microseconds,
// yields, then sleeps, so that neither an idle trainer nor a busy machine wastes processor time.
#pragma once

#include <stdint.h>

#include "runtime/base/error.h"

struct cpu_lanes;

cn_err cpu_lanes_open(uint32_t count, struct cpu_lanes **lanes);
void cpu_lanes_close(struct cpu_lanes *lanes);

// Calls work(context, lane) for every lane and returns when all are done.
void cpu_lanes_run(struct cpu_lanes *lanes, void (*work)(void *context, uint32_t lane),
                   void *context);

// Called by every lane in the middle of a run: returns when all have called it.
void cpu_lanes_meet(struct cpu_lanes *lanes);
