// spool_private.h - the spool's fields, for its files.
#pragma once

#include "aggregator/store/spool.h"
#include "runtime/base/log_limit.h"

#define CN_SPOOL_WAITS 64 // groups in the queue; beyond them the one that asked longest ago goes

// A group that was refused for lack of room, and asks again every few seconds.
struct cn_spool_wait {
    char group[CN_NAME_SIZE]; // "": unused
    uint64_t size;            // bytes that its update needs; 0: it measures
    uint64_t since_ms;        // clock of the first refusal
    uint64_t asked_ms;        // clock of the last one
};

struct cn_spool {
    struct cn_spool_config config;
    struct cn_spooled *uploads;
    uint64_t used; // bytes of all uploads
    bool full_told;
    struct cn_spool_wait queue[CN_SPOOL_WAITS];
    struct cn_log_quota full;     // lines about the disk
    struct cn_log_quotas waits;   // lines about uploads that wait for room, by group
    struct cn_log_quotas dropped; // lines about dropped uploads, by board
};
