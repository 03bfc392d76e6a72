// collective_nccl.h - the collective over NCCL, for groups whose LAN is trusted: its wire is not
// encrypted.
#pragma once

#include "ports/nccl/library.h"
#include "runtime/port/collective.h"

// The contract of collective.h. In addition:
//
// config.control is needed. The members agree over it that all can do it, it carries the id of the
// epoch, which is a secret, and it notices a member that is gone.
//
// open returns CN_ENOTSUP, on all members, when one of them cannot do it, has another version or
// did not get ready in config.open_timeout_ms. It can be opened for another epoch then; a member on
// which three epochs in a row ended by an error of NCCL or of its device cannot any more. When the
// communicators of sets do not get ready in that time, the epoch goes on over config.control.
//
// Only large sums and averages travel over NCCL: all-reduce, reduce-scatter and all-gather of at
// least CN_NCCL_BYTES_MIN, of the whole group or of one of the first 15 sets that were prepared.
// All else is done by config.control.
//
// A member that closes takes what it has sent from those that still receive it: a call on the
// control comes between, as the vote after each step does.
//
// CN_EWEDGED, also from close by way of cn_nccl_wedged: an abort did not end within a second.
#define CN_NCCL_BYTES_MIN 65536

extern const struct cn_collective_ops cn_collective_nccl;

// True once an abort in this process has not ended: NCCL is unusable, the process must be
// restarted.
bool cn_nccl_wedged(void);

// The same with another table in place of the libraries.
cn_err cn_nccl_open_with(const struct nccl_library *library,
                         const struct cn_collective_config *config,
                         struct cn_collective **collective);
