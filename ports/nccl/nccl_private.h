// nccl_private.h - shared by the files of this port: an open collective and how it waits.
#pragma once

#include <stdatomic.h>

#include "ports/nccl/abort.h"
#include "runtime/port/collective.h"

#define NCCL_STAGING_SIZE (16u << 20) // bytes of device memory that data passes through

struct nccl {
    struct cn_collective base;
    const struct nccl_library *library;
    struct cn_collective *control;   // borrowed
    const struct cn_member *members; // borrowed
    struct cn_view view;
    uint32_t device;
    uint32_t form_ms, timeout_ms; // limits: to form communicators; of a wait without progress
    uint64_t form_until_ms;       // when all communicators together must have formed
    int stop_fd;                  // the caller's; readable: cancel; -1 for none
    atomic_bool canceled;
    bool dead;     // an error ended the collective
    bool troubled; // a call on the control failed, so members may end at different times
    uint32_t lost; // index in the member list of the failed member, or UINT32_MAX
    struct nccl_member comms[NCCL_COMMS_MAX]; // the whole group's first, then its children
    uint32_t comm_count;
    // Ids of the sets that were prepared, also those without this member.
    uint32_t known[NCCL_COMMS_MAX];
    uint32_t known_count;
    cuda_stream stream;
    cuda_event event;
    cuda_pointer staging; // device memory of NCCL_STAGING_SIZE bytes
    uint16_t *halves;     // owned: room for the rounded numbers of a narrow sum
    size_t half_count;    // numbers that halves has room for
};

// Returns whether NCCL accepted a call. Its asynchronous work may still be running.
bool nccl_started(int result);

// Waits until the communicator has put all its work on the stream: NCCL starts work from a thread
// of its own. Until then put nothing else on the stream and do not call NCCL.
//
// Both waits return CN_ETIMEOUT, CN_ECANCELED, CN_EPEER for a lost member, and CN_EIO when NCCL or
// the device failed.
cn_err nccl_await_start(struct nccl *nccl, const struct nccl_member *comm, uint32_t timeout_ms);

// Waits until the stream is empty. Every call that may wait for another member needs this before a
// copy to the host. Such a copy blocks in the driver, where the loss of a member is not noticed.
cn_err nccl_await_stream(struct nccl *nccl, const struct nccl_member *comm, uint32_t timeout_ms);

// Returns whether NCCL does this call: a large sum or average, by ALL_REDUCE, REDUCE_SCATTER or
// ALL_GATHER.
bool nccl_takes_call(const struct cn_collective_call *call);

// Does a call that nccl_takes_call accepted. Blocks until the data may be used; errors are those of
// the waits, and CN_ENOMEM.
cn_err nccl_run_call(struct nccl *nccl, const struct nccl_member *comm,
                     const struct cn_collective_call *call);
