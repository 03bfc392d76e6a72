// epoch_file.h - the highest group epoch that this board has seen, on disk.
//
// A leader sends an epoch to others only after it is here, so that it never issues the same number
// with other members after a restart (membership.h). A checkpoint holds the epoch as well, but is
// written later and may come from another board. The file group.epoch is 16 bytes: the epoch and
// its complement, both u64 little-endian. Threading: the owner thread of a node.
#pragma once

#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/port/store.h"

// Returns the stored epoch; 0 when there is no file or it is damaged, which is logged.
uint64_t cn_epoch_file_load(struct cn_store *store);

// Stores the epoch durably.
cn_err cn_epoch_file_save(struct cn_store *store, uint64_t epoch);
