// readiness.h - whether a running aggregator can do its work, with the reasons why not.
#pragma once

#include "runtime/base/bytes.h"

struct cn_readiness {
    cn_err trouble;        // why the run waits; CN_OK: it does not
    uint64_t disk_free;    // bytes; 0: not known
    uint64_t disk_reserve; // bytes
    uint32_t groups;       // enrolled
    uint32_t quorum;
};

// Writes "ok", or a line for each reason. Sets *ready.
cn_err cn_readiness_write(const struct cn_readiness *readiness, struct cn_buffer *out, bool *ready);
