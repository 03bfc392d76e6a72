// abort.h - ends communicators in a thread of its own, because an end may take long or hang.
//
// A member that loses another must form the next epoch at once, but NCCL's own threads poll for up
// to half a second each before they notice an abort. So nobody waits for an end: the communicators
// and what their kernels use on the device go to a thread, which frees it all when NCCL is done.
// The next epoch asks nccl_await_ends before it uses NCCL.
//
// Threading: any. At exit the process waits for the ends that have begun, each within its limit.
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

// What an epoch holds of NCCL and of the device. Handles that are 0 were not made.
struct nccl_holdings {
    const struct nccl_library *library; // must stay valid until the end has returned
    uint32_t device;
    struct nccl_member comms[NCCL_COMMS_MAX]; // the parent of the others is the first
    uint32_t comm_count;
    cuda_stream stream;
    cuda_event event;
    cuda_pointer staging;
};

// Takes the holdings, starts their end and returns at once. Healthy communicators, which all
// members end at about the same time, are finalized and destroyed, and aborted only if that takes
// too long or fails. All others are aborted. CN_EWEDGED if the end could not even begin.
cn_err nccl_end(const struct nccl_holdings *holdings, bool healthy);

// Waits for the ends that have begun, timeout_ms at most. Returns whether all of them have
// finished.
bool nccl_await_ends(uint32_t timeout_ms);
