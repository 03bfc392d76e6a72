// flaky_store.h - a store in memory that fails when a test says so.
//
// Every operation except abort and close is counted, from 1. fail_at is the number of the one that
// fails, with fail_err; with lasting, all later ones fail, too. A failed operation changes nothing,
// with one exception: a commit with commit_before_failing becomes visible and then reports the
// failure, like a disk whose answer was lost. A test ends the failures before it looks at the
// files, as a restarted program would.
#pragma once

#include <stdbool.h>

#include "runtime/port/store.h"

struct cn_flaky_file;

struct cn_flaky_store {
    struct cn_store store;
    struct cn_flaky_file *files; // the visible files
    size_t file_count;
    size_t open_count;   // files that were created and neither committed nor aborted
    unsigned operations; // operations so far
    unsigned removals;   // calls of remove so far, not of unlink
    unsigned fail_at;    // 0: never
    bool lasting;
    bool commit_before_failing;
    cn_err fail_err;
};

void cn_flaky_store_init(struct cn_flaky_store *flaky);
void cn_flaky_store_deinit(struct cn_flaky_store *flaky);

// Makes the operation fail that is the number-th from now. 0 ends the failures.
void cn_flaky_store_fail(struct cn_flaky_store *flaky, unsigned number, bool lasting, cn_err err);

// Returns the bytes of a visible file, to look at or to damage, or NULL when there is no such file.
uint8_t *cn_flaky_store_bytes(struct cn_flaky_store *flaky, const char *name, size_t *size);
