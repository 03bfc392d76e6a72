// nccl_private.h - what the files of this port share: an open collective and how it waits.
#pragma once

#include <stdatomic.h>

#include "ports/nccl/abort.h"
#include "runtime/port/collective.h"

#define NCCL_STAGING_SIZE (16u << 20) // bytes on the device that data passes through

struct nccl {
    struct cn_collective base;
    const struct nccl_library *library;
    struct cn_collective *control;   // borrowed
    const struct cn_member *members; // borrowed
    struct cn_view view;
    uint32_t device;
    uint32_t form_ms, timeout_ms;
    uint64_t form_until_ms; // for all communicators together
    int stop_fd;
    atomic_bool canceled;
    bool dead;
    uint32_t lost;
    struct nccl_member comms[NCCL_COMMS_MAX]; // the whole group's first, then its children
    uint32_t comm_count;
    uint32_t known[NCCL_COMMS_MAX]; // ids of the sets that were prepared, this member's and others
    uint32_t known_count;
    cuda_stream stream;
    cuda_event event;
    cuda_pointer staging;
    uint16_t *halves; // owned: room for narrow sums, see calls.c
    size_t half_count;
};

// Whether a call was taken; asynchronous work of the communicator may go on.
bool nccl_started(int result);

// Waits until the communicator has nothing under way that is not on the stream. Until then nothing
// else may be put on the stream, nor NCCL be called: it starts work from a thread of its own.
// Here and below: CN_ETIMEOUT, CN_ECANCELED, and CN_EPEER for a member that is lost.
cn_err nccl_await_start(struct nccl *nccl, const struct nccl_member *comm, uint32_t timeout_ms);

// Waits until the stream is empty. For each call that may wait for another member this comes before
// anything that copies to the host: such a copy blocks in the driver, where nobody sees the peer
// go.
cn_err nccl_await_stream(struct nccl *nccl, const struct nccl_member *comm);

// One that large sums and averages go to: ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER.
bool nccl_takes_call(const struct cn_collective_call *call);
cn_err nccl_run_call(struct nccl *nccl, const struct nccl_member *comm,
                     const struct cn_collective_call *call);
