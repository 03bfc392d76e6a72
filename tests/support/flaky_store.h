// flaky_store.h - a store in memory that fails when a test says so.
//
// Every operation but abort and close counts, from 1. fail_at names the one that fails with
// fail_err; with lasting, all later ones fail too. A failed operation changes nothing, except a
// commit with commit_before_failing, which becomes visible and then reports the failure, as a lost
// answer of a disk would. A test that ends the flaky time looks at the files as a restarted program
// would.
#pragma once

#include <stdbool.h>

#include "runtime/port/store.h"

struct cn_flaky_file;

struct cn_flaky_store {
    struct cn_store store;
    struct cn_flaky_file *files; // visible ones
    size_t file_count;
    size_t open_count;   // files created and neither committed nor aborted
    unsigned operations; // so far
    unsigned fail_at;    // 0 for never
    bool lasting;
    bool commit_before_failing;
    cn_err fail_err;
};

void cn_flaky_store_init(struct cn_flaky_store *flaky);
void cn_flaky_store_deinit(struct cn_flaky_store *flaky);

// The next failing operation is the number-th from now; 0 ends the flaky time.
void cn_flaky_store_fail(struct cn_flaky_store *flaky, unsigned number, bool lasting, cn_err err);

// The bytes of a visible file, to look at or to damage; NULL when there is none.
uint8_t *cn_flaky_store_bytes(struct cn_flaky_store *flaky, const char *name, size_t *size);
