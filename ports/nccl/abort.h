// abort.h - ends communicators in a thread of its own, because an abort may hang.
#pragma once

#include <stdint.h>

#include "ports/nccl/library.h"

#define NCCL_COMMS_MAX 16 // communicators of an epoch: the whole group's and those of sets

// A communicator and this board's place in its set.
struct nccl_member {
    nccl_comm handle;
    uint32_t set; // id of the set; 0 is the whole group
    uint32_t size, place;
};

// Aborts and releases all communicators and sets *count to 0. The parent of the others is the first
// in the list. Healthy communicators end this way too, since nothing else is sure not to hang.
// Blocks for at most a second; CN_EWEDGED when that did not suffice: NCCL is unusable from then on.
// library must stay valid.
cn_err nccl_abort(const struct nccl_library *library, uint32_t device,
                  const struct nccl_member *comms, uint32_t *count);
