// log_limit.h - limits the log lines that others can provoke, so that they cannot fill a disk.
//
// Threading: none; one limit or quota belongs to one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/log.h"

#define CN_LOG_LIMIT_MS 10000 // shortest time between two lines

// At most one line in CN_LOG_LIMIT_MS about frequent events.
struct cn_log_limit {  // all zero at first
    uint64_t until_ms; // no line before this time, on the clock of the caller's now_ms
    uint64_t count;    // events since the last line
};

// Counts one event. Returns true when a line is due: for the first event, and for the first one
// CN_LOG_LIMIT_MS after each line. Sets *count then: the number of events since the last line, this
// one included.
bool cn_log_limit_due(struct cn_log_limit *limit, uint64_t now_ms, uint64_t *count);

#define CN_LOG_QUOTA_BURST 60    // tokens of a full bucket; a line takes one
#define CN_LOG_QUOTA_MS 1000     // time in which one token returns
#define CN_LOG_QUOTA_BUCKETS 256 // buckets of a struct cn_log_quotas

// A token bucket for lines of one kind.
struct cn_log_quota {  // all zero at first
    uint64_t now_ms;   // time of the last call
    uint64_t spent_ms; // time until all taken tokens have returned
    uint64_t left_out; // lines without a token since the last line that was written
};

// Buckets for one kind of line about many peers. Several peers may share a bucket.
struct cn_log_quotas { // all zero at first
    struct cn_log_quota buckets[CN_LOG_QUOTA_BUCKETS];
};

// Returns the bucket of the peer of this name; NULL when quotas is NULL.
struct cn_log_quota *cn_log_quota_of(struct cn_log_quotas *quotas, const char *peer);

// Takes a token. Returns false when there is none, and counts the line as left out. On true, sets
// *left_out to the number of lines left out since the last line that was written.
bool cn_log_quota_take(struct cn_log_quota *quota, uint64_t now_ms, uint64_t *left_out);

// As cn_log, within the quota, or without a limit when quota is NULL. A line that the level of its
// area does not let through takes no token. In place of the first line that is left out, a line
// says that lines are left out. Before the next line that is written, a line has their number. A
// message is cut to 511 bytes.
void cn_log_within(struct cn_log_quota *quota, uint64_t now_ms, enum cn_log_level level,
                   const char *area, const char *format, ...) __attribute__((format(printf, 5, 6)));
