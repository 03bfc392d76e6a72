// run_files.h - which runs a board keeps the state of, so that it can serve several in turn.
//
// The runs stand in the file "runs" in the order of their last use. Files of a run that the list
// does not name count as used longest ago: the list may be older than the files, or lost.
// Threading: that of the store.
#pragma once

#include "runtime/port/store.h"

#define CN_RUN_FILES_MOST 9 // runs whose state is kept, with the present one

struct cn_run_files_config {
    struct cn_store *store; // the board's
    const char *disk;       // directory of the state
    uint64_t reserve;       // bytes of disk to leave free
};

// Notes that the board serves a run from now on. Removes the state of runs that were used longest
// ago: those beyond CN_RUN_FILES_MOST, and as many as it takes to have the reserve free. Logs which
// ones, and what fails; a failure does not keep the board from training.
void cn_run_files_use(const struct cn_run_files_config *config, uint64_t run);
