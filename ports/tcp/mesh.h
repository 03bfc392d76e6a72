// mesh.h - the connections of one epoch: a pair between any two members.
//
// Threading: one thread.
#pragma once

#include "ports/tcp/pair.h"

struct cn_mesh {
    struct cn_pair *pairs[CN_GROUP_MAX]; // by rank; NULL for this board itself
};

// Connects all members of view: listens for the ranks above this board's and calls the ranks below.
// Blocks until all are connected or deadline_ms (cn_platform_now_ms) is over. Listens at
// config->listen, or at this member's address. config is borrowed until cn_mesh_close.
//
// Errors at once: CN_ESTALE when a member is in a later epoch; CN_EPEER when a connected member
// closes, or one that has listened refuses; CN_EEXIST when the port is taken; CN_ECANCELED soon
// after cancel_fd (-1 for none) becomes readable. At the deadline: CN_ETIMEOUT. Instead of CN_EPEER
// and CN_ETIMEOUT: CN_EAUTH or CN_ENOTSUP, if a missing member was refused for that reason. After
// an error nothing is open. *lost is an index in the member list, or UINT32_MAX. It names the
// member that was refused, or that has ended without notice (parting.h). After CN_ETIMEOUT it names
// the first missing one, and after CN_EPEER one that alone was missing.
cn_err cn_mesh_open(const struct cn_pair_config *config, const struct cn_view *view,
                    uint64_t deadline_ms, int cancel_fd, struct cn_mesh *mesh, uint32_t *lost);

// Closes all pairs. Accepts a zeroed mesh.
void cn_mesh_close(struct cn_mesh *mesh);
