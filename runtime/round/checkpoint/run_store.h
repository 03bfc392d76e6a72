// run_store.h - the files of one run in a board's store, which may hold those of several.
//
// A run's files have a prefix, "run-00000000000000a1.checkpoint.a". The files without a prefix
// belong to the run whose state lies in them; while none does, to the run that comes first. So a
// board with one run has the files that it always had. Threading: that of the board's store.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/port/store.h"

#define CN_RUN_PREFIX_SIZE 22 // "run-", 16 digits, ".", and the terminating 0

// Opens the files of a run as a store: each name gets the prefix of the run, and list leaves it
// out. The board's store is borrowed until close, which leaves it open.
cn_err cn_run_store_open(struct cn_store *board, uint64_t run, struct cn_store **store);

// Reads the run of a file name's prefix. Returns false for a name without one.
bool cn_run_store_name(const char *name, uint64_t *run);

// Reads the run whose state lies in files without a prefix. Returns false when there is none.
bool cn_run_store_plain(struct cn_store *board, uint64_t *run);

// As cn_checkpoint_find_unknown, for the states of all runs.
cn_err cn_run_store_find_unknown(struct cn_store *board, uint32_t *version);

// Removes all files of a run that have its prefix, and its states that have none.
cn_err cn_run_store_remove(struct cn_store *board, uint64_t run);
