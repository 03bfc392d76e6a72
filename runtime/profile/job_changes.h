// job_changes.h - of each key of a job, whether it may change in a run.
//
// The table stands beside that of schema.c; a test compares their keys. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum cn_change {
    // What is learned and from what: another value makes another run.
    CN_CHANGE_NEVER,
    // How boards train and how a version is made of their updates. Only `reload` changes it, from
    // one round to the next. A start of the aggregator refuses another value.
    CN_CHANGE_ROUND,
    // No version that is made again from its updates depends on it. Another value may come by a
    // reload or by a start of the aggregator.
    CN_CHANGE_START,
    // As CN_CHANGE_START, but only a start of the aggregator opens what the value names.
    CN_CHANGE_RESTART,
};

// A class as a bit, for functions that take several.
#define CN_CHANGE_BIT(change) (1u << (change))

struct cn_job_change {
    const char *key; // without "job."
    enum cn_change change;
};

extern const struct cn_job_change cn_job_changes[];
extern const size_t cn_job_change_count;

// Returns the class of a key, CN_CHANGE_NEVER for a key that is not in the table.
enum cn_change cn_job_change_of(const char *key);
