// run_private.h - what the files of the run share: its state. run.c has the phases, run_updates.c
// what boards hear and how their updates are judged.
#pragma once

#include "aggregator/run/run.h"
#include "runtime/base/log_limit.h"

struct cn_run {
    struct cn_run_config config;
    enum cn_run_phase phase;
    uint32_t round;          // OPEN, CLOSING: of the ledger; else the next one
    uint32_t accepted;       // contributions to it
    uint32_t selected;       // groups invited to it
    uint32_t wanted;         // groups to invite; grows when a deadline passes
    uint64_t deadline_ms;    // clock; OPEN
    uint64_t quorum_seen_ms; // clock; when GATHER saw enough groups, 0: not yet
    uint64_t retry_ms;       // clock; CLOSING: not before
    uint64_t invite_ms;      // clock; OPEN: looks for more groups then
    uint32_t measured;       // newest version whose evaluation was started
    bool measured_any;
    struct cn_run_traffic base; // of earlier processes
    bool waiting_told, trouble_told;
    struct cn_log_quotas rejected; // lines about rejected updates, by group
    struct cn_log_quotas late;     // lines about late updates, by group
    struct cn_log_quotas outliers; // lines about measurements, by group
    struct cn_merge_cuts cuts;     // of the newest version
    char warning[CN_RUN_WARNING];  // of the version that was measured last; "": none
    const char *end_reason;
    struct cn_run_progress progress;
};
