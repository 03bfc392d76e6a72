// node_health.h - decides when a board reports its health to the aggregator, and what it reports
// (port/health.h).
//
// A report is due every minute, and at a change that matters (a pause, throttling, an error), but
// at least 5 s after the report before. A new step, temperature or power is no such change: these
// change all the time. A board that was registered again reports as after a change: an aggregator
// that was started again knows nothing of it, and could not invite its group by rounds.select.
// Threading: none.
#pragma once

#include "runtime/port/health.h"
#include "runtime/round/node/status_file.h"

struct cn_node_health {
    uint64_t told_ms; // clock; time of the newest report; 0: none yet
    uint64_t wait_ms; // from that report to the next one without a change
    bool registered;  // since that report
    struct cn_health newest, told;
};

// Fills in newest from the status of the node. fault is "" or why the board cannot train, and code
// belongs to it.
void cn_node_health_take(struct cn_node_health *health, const struct cn_status_file *status,
                         const char *fault, cn_err code);

// Returns whether newest is to be sent now, and notes that it is. salt makes the reports of boards
// that were started together drift apart.
bool cn_node_health_due(struct cn_node_health *health, uint64_t salt, uint64_t now_ms);
