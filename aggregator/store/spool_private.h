// spool_private.h - the spool's fields, for its files.
#pragma once

#include "aggregator/store/spool.h"
#include "runtime/base/log_limit.h"

struct cn_spool {
    struct cn_spool_config config;
    struct cn_spooled *uploads;
    uint64_t used; // bytes of all uploads
    bool full_told;
    struct cn_log_quota full;     // lines about the disk
    struct cn_log_quotas waits;   // lines about uploads that wait for room, by group
    struct cn_log_quotas dropped; // lines about dropped uploads, by board
};
