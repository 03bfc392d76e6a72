// backend.h - the collective of an epoch: the encrypted one, with a faster one beside it where all
// members want that.
//
// The encrypted collective always opens. Where the site trusts its LAN and the build has a fast
// port, the members then ask each other over it; if all say yes, the fast one opens with the
// encrypted one as its control. Should it not, on any member, the epoch goes on without it on all
// of them.
#pragma once

#include "runtime/port/collective.h"

struct cn_backend_ports {
    const struct cn_collective_ops *secure;
    const struct cn_collective_ops *fast; // NULL: none, or not wanted
};

// The result answers to the contract of collective.h, close included. Errors and lost are those of
// the secure one, and CN_EWEDGED.
cn_err cn_backend_open(const struct cn_backend_ports *ports,
                       const struct cn_collective_config *config, struct cn_collective **collective,
                       uint32_t *lost);

// The name of what large sums travel over now: "tcp", "nccl". why: of a fast port that this board
// wants and that is not in use, the reason in words, valid until close; else NULL.
const char *cn_backend_name(const struct cn_collective *collective, const char **why);
