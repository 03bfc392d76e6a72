// abort.h - ends communicators, in a thread of its own: an abort may hang.
#pragma once

#include <stdint.h>

#include "ports/nccl/library.h"

#define NCCL_COMMS_MAX 16 // the whole group's communicator and those of sets

// A communicator and this board's place in it.
struct nccl_member {
    nccl_comm handle;
    uint32_t set; // id; 0 is the whole group
    uint32_t size, place;
};

// Releases all communicators, the parent first in the list, and sets count to 0; also the only way
// to end healthy ones that leaves nothing to hang on. CN_EWEDGED when that takes more than a
// second: NCCL is unusable from then on.
cn_err nccl_abort(const struct nccl_library *library, uint32_t device,
                  const struct nccl_member *comms, uint32_t *count);
