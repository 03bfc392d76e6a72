// backend.h - the collective of an epoch: the encrypted one, and beside it a faster one where all
// members want it.
//
// The encrypted collective always opens. Members whose site trusts its LAN, and whose build has a
// fast port, then ask each other over it. If all agree, the fast one opens with the encrypted one
// as its control. If it fails to open on any member, all members use only the encrypted one.
#pragma once

#include "runtime/port/collective.h"

struct cn_backend_ports {
    const struct cn_collective_ops *secure;
    const struct cn_collective_ops *fast; // NULL: the build has none, or it is not wanted
};

// Opens the collective of an epoch. The result follows the contract of collective.h; close it with
// its ops. Errors and lost are those of the secure port. CN_EWEDGED: the fast port hangs.
cn_err cn_backend_open(const struct cn_backend_ports *ports,
                       const struct cn_collective_config *config, struct cn_collective **collective,
                       uint32_t *lost);

// Returns the name of the port that large sums use now: "tcp" or "nccl". *why is the reason, valid
// until close, when this board wants a fast port that is not in use; else NULL.
const char *cn_backend_name(const struct cn_collective *collective, const char **why);
