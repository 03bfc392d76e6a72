// job_changes.h - says for each key of a job whether its value may change during a run.
//
// The keys of the table are those of the job in schema.c; a test compares them. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum cn_change {
    // Says what is learned and from what: another value makes another run.
    CN_CHANGE_NEVER,
    // Says how boards train or how a version is made of their updates. Only `reload` can change the
    // value, from one round to the next. At its start the aggregator refuses another value.
    CN_CHANGE_ROUND,
    // Does not matter when a version is made again from its updates. A reload or a start of the
    // aggregator may bring another value.
    CN_CHANGE_START,
    // As CN_CHANGE_START, but only a start brings another value: it opens what the value names.
    CN_CHANGE_RESTART,
};

// An enum cn_change as a bit, for functions that take several.
#define CN_CHANGE_BIT(change) (1u << (change))

struct cn_job_change {
    const char *key; // without "job."
    enum cn_change change;
};

extern const struct cn_job_change cn_job_changes[];
extern const size_t cn_job_change_count;

// Returns when the value of a key may change: CN_CHANGE_NEVER for a key that is not in the table.
enum cn_change cn_job_change_of(const char *key);
