// mesh.h - the connections of one epoch: a pair between any two members.
#pragma once

#include "ports/tcp/pair.h"

struct cn_mesh {
    struct cn_pair *pairs[CN_GROUP_MAX]; // by rank; NULL for this board itself
};

// Listens at the board's own address for the ranks above it and calls the ranks below, until all
// are connected or the deadline (platform clock) is over. CN_ESTALE at once when a member is in a
// later epoch; at the deadline CN_EAUTH or CN_ENOTSUP when that is why the missing one was refused,
// else CN_ETIMEOUT. CN_EPEER at once when one that was connected closes, or one
// that has listened does no more.
// CN_EEXIST when the port is taken. CN_ECANCELED soon after cancel_fd (-1 for
// none) became readable. After an error nothing is open and lost is the index in the member list of
// the first that is missing, or UINT32_MAX.
cn_err cn_mesh_open(const struct cn_pair_config *config, const struct cn_view *view,
                    uint64_t deadline_ms, int cancel_fd, struct cn_mesh *mesh, uint32_t *lost);

void cn_mesh_close(struct cn_mesh *mesh);
