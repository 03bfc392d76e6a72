// readiness.h - whether a running aggregator can do its work, with the reasons why not.
#pragma once

#include "aggregator/show/invitable.h"
#include "runtime/base/bytes.h"

struct cn_readiness {
    cn_err trouble;        // why the run waits; CN_OK: it does not
    uint64_t disk_free;    // bytes; 0: not known
    uint64_t disk_reserve; // bytes
    struct cn_invitable groups;
    const char *word; // that of cn_job_needed_word: "quorum"
    uint32_t quorum;
    bool over; // no round is to come, so that too few groups are no reason
};

// Writes "ok", or a line for each reason. Sets *ready.
cn_err cn_readiness_write(const struct cn_readiness *readiness, struct cn_buffer *out, bool *ready);
