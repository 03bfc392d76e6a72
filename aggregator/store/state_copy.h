// state_copy.h - copies a state directory beside an aggregator that runs on it.
//
// The copy has the ledger as it is at one moment, and the files of that moment. A file is durable
// before the ledger names it, so the copy has all that its ledger needs. If the run removes such a
// file meanwhile, the copy is made again. Unfinished uploads are left out: boards send them again.
// Threading: none; the calls block.
#pragma once

#include "aggregator/ledger/ledger.h"

// Copies the ledger, as it is at one moment, into a new file of mode 0600, whose content is
// durable. Returns CN_EEXIST when path exists, CN_EAGAIN when another program writes.
cn_err cn_state_copy_ledger(struct cn_ledger *ledger, const char *path);

struct cn_state_copy {
    const char *state;        // directory; borrowed, as all pointers here
    struct cn_ledger *ledger; // of state
    const char *to;           // becomes a state directory; must not exist
    // Checks that the copy in directory has what its ledger needs. Returns CN_ENOTFOUND when a file
    // is missing.
    cn_err (*check)(void *context, const char *directory);
    // Adds to a copy that was checked, before it gets its name. NULL: nothing is added.
    cn_err (*add)(void *context, const char *directory);
    void *context;
    uint32_t files; // number of files that were copied
    uint64_t bytes; // size of all these files
};

// Makes the copy in the directory to.partial and then renames it to `to`, durably. Returns
// CN_EEXIST when one of the two exists, CN_EAGAIN when the run removed files or held the ledger
// during each try.
cn_err cn_state_copy_make(struct cn_state_copy *copy);
