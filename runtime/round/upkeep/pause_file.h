// pause_file.h - what living on a board must remember over a restart: the day of wear, and what the
// hooks were told. A file of the store, CHECKPOINT.md says how; a damaged one counts as none.
#pragma once

#include "runtime/port/store.h"

struct cn_pause_memory {
    uint64_t elapsed_ms;     // of the day of wear, when this was saved
    uint64_t worn;           // bytes written in it
    uint64_t clock_s;        // the date then, in seconds since 1970; 0 when the clock was not set
    uint32_t round, version; // the last that hooks were told of
};

// What was saved, or zeros.
void cn_pause_file_load(struct cn_store *store, struct cn_pause_memory *memory);

// Durable. The stored one is intact after an error.
cn_err cn_pause_file_save(struct cn_store *store, const struct cn_pause_memory *memory);
