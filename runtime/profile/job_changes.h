// job_changes.h - of each key of a job, whether it may change in a run.
//
// The table stands beside that of schema.c; a test compares their keys. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum cn_change {
    // What is learned and from what: another value makes another run.
    CN_CHANGE_NEVER,
    // How boards train and how a version is made of their updates. The ledger's settings rows can
    // hold a change from one round to the next; no command makes one, so it is refused at a start.
    CN_CHANGE_ROUND,
    // No version that is made again from its updates depends on it. Another value holds from the
    // next start of the aggregator on.
    CN_CHANGE_START,
};

struct cn_job_change {
    const char *key; // without "job."
    enum cn_change change;
};

extern const struct cn_job_change cn_job_changes[];
extern const size_t cn_job_change_count;

// Returns the class of a key, CN_CHANGE_NEVER for a key that is not in the table.
enum cn_change cn_job_change_of(const char *key);
