// epoch_file.h - the highest group epoch that this board has seen, on disk.
//
// A leader sends an epoch to others only after it is here, so that it never issues the same number
// with other members after a restart (membership.h). Epochs of other pair keys are other epochs:
// their members cannot hear each other. So the numbers begin again with each newer key epoch, and a
// revocation also ends what the revoked board did to them. A checkpoint holds the epoch as well,
// but is written later, may come from another board, and does not know its key epoch.
//
// The file group.epoch is 32 bytes: the epoch, its key epoch, and the complement of each, as u64
// little-endian. Older releases wrote only the epoch and its complement. Threading: the owner
// thread of a node.
#pragma once

#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/port/store.h"

// Returns the epoch from which a group with these pair keys continues: the stored one, or 0 when
// that is of older keys. Without a file that says it, returns checkpoint, the epoch of the
// checkpoint. A damaged file is logged.
uint64_t cn_epoch_file_load(struct cn_store *store, uint64_t key_epoch, uint64_t checkpoint);

// Stores the epoch durably.
cn_err cn_epoch_file_save(struct cn_store *store, uint64_t key_epoch, uint64_t epoch);
