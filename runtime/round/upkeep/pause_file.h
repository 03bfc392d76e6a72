// pause_file.h - the upkeep state that must survive a restart: the day of wear, and the last events
// that the hooks were told of. A day of wear is 24 h over which disk writes are counted. The file
// lies in the store and is described in CHECKPOINT.md. A damaged file counts as missing.
#pragma once

#include "runtime/port/store.h"

struct cn_pause_memory {
    uint64_t elapsed_ms;     // duration of the day of wear until this was saved
    uint64_t worn;           // bytes written in that day
    uint64_t clock_s;        // date of the save, in seconds since 1970; 0: the clock was not set
    uint32_t round, version; // last round and version that hooks were told of
};

// Loads what was saved, or zeros.
void cn_pause_file_load(struct cn_store *store, struct cn_pause_memory *memory);

// Saves durably. After an error the stored file is intact.
cn_err cn_pause_file_save(struct cn_store *store, const struct cn_pause_memory *memory);
