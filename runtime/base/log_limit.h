// log_limit.h - lines about what others can provoke at will, few enough that they cannot fill a
// disk.
//
// Threading: none; one limit belongs to one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/log.h"

#define CN_LOG_LIMIT_MS 10000 // between two lines

struct cn_log_limit { // all zero at first
    uint64_t until_ms;
    uint64_t count;
};

// Counts one; true when it is time for a line: the first time, and then after CN_LOG_LIMIT_MS.
// *count is how many it speaks of.
bool cn_log_limit_due(struct cn_log_limit *limit, uint64_t now_ms, uint64_t *count);

#define CN_LOG_QUOTA_BURST 60   // lines at once
#define CN_LOG_QUOTA_MS 1000    // and one more in so long
#define CN_LOG_QUOTA_BUCKETS 32 // of peers

// A token bucket for lines of one kind.
struct cn_log_quota { // all zero at first
    uint64_t now_ms;
    uint64_t spent_ms; // tokens taken and not come back
    uint64_t left_out; // lines, since the last one that was written
};

// One kind of line about many peers: each has a bucket, a few may share one.
struct cn_log_quotas { // all zero at first
    struct cn_log_quota buckets[CN_LOG_QUOTA_BUCKETS];
};

struct cn_log_quota *cn_log_quota_of(struct cn_log_quotas *quotas, const char *peer);

// Takes a token. When it returns true, *left_out is the number of lines before that had none.
bool cn_log_quota_take(struct cn_log_quota *quota, uint64_t now_ms, uint64_t *left_out);

// As cn_log, within the quota. The first line that is left out is told of, and their number before
// the next one that is written.
void cn_log_within(struct cn_log_quota *quota, uint64_t now_ms, enum cn_log_level level,
                   const char *area, const char *format, ...) __attribute__((format(printf, 5, 6)));
