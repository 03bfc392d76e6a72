// log_limit.h - lines about what others can provoke at will, few enough that they cannot fill a
// disk.
//
// Threading: none; one limit belongs to one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CN_LOG_LIMIT_MS 10000 // between two lines

struct cn_log_limit { // all zero at first
    uint64_t until_ms;
    uint64_t count;
};

// Counts one; true when it is time for a line: the first time, and then after CN_LOG_LIMIT_MS.
// *count is how many it speaks of.
bool cn_log_limit_due(struct cn_log_limit *limit, uint64_t now_ms, uint64_t *count);
