// collective_nccl.h - the collective over NCCL, for groups on a trusted LAN: NCCL does not encrypt.
#pragma once

#include "ports/nccl/library.h"
#include "runtime/port/collective.h"

// Keeps the contract of collective.h. In addition:
//
// config.control is required and borrowed until close. Over it the members agree that all can use
// NCCL, share the id of the communicator, which is a secret, and notice that a member is gone.
//
// open returns CN_ENOTSUP, on all members, if one of them cannot use NCCL, has another version or
// is not ready within config.open_timeout_ms. open may be tried again in the next epoch. After
// three epochs in a row that an error of NCCL or of its device ended, a member declines until its
// process ends. If the communicators of sets are not ready in that time, the epoch continues over
// config.control.
//
// Only large sums and averages use NCCL: all-reduce, reduce-scatter and all-gather of at least
// CN_NCCL_BYTES_MIN bytes. The set must be the whole group or one of the first 15 sets that were
// prepared. config.control does all other calls.
//
// A member that closes withdraws what it has sent from members that still receive it. So before
// close, make a call on the control, as the vote after each step does.
//
// No call waits for communicators to end, which NCCL may take seconds for. open waits for those of
// the epoch before, for config.open_timeout_ms or half of config.progress_timeout_ms at most; then
// the member declines NCCL for the epoch.
// open and later calls return CN_EWEDGED when an abort did not end within 10 s.
#define CN_NCCL_BYTES_MIN 65536

extern const struct cn_collective_ops cn_collective_nccl;

// Returns true once an abort in this process has not ended in its time: NCCL is unusable, and the
// process must be restarted. Threading: any.
bool cn_nccl_wedged(void);

// As open, with the given table instead of the loaded libraries. NULL: this member declines.
// library is borrowed until the communicators have ended, which may be after close.
cn_err cn_nccl_open_with(const struct nccl_library *library,
                         const struct cn_collective_config *config,
                         struct cn_collective **collective);
