// parting.h - the end of a mesh after an error: who is to blame, and who only gives up.
//
// The connections of a lost member end with it, and each survivor then closes its own. A survivor
// must not look like the lost member, so it first tells the others that it gives up. A connection
// that ends without this notice belongs to a lost member.
//
// Threading: one thread.
#pragma once

#include "ports/tcp/mesh.h"

// Longest wait until the end of a lost member's connection is seen here, too, in milliseconds.
#define CN_PARTING_FIND_MS 500

// Tells all members that this one gives up. Returns the index in the member list of a member whose
// connection has ended without notice: accused if it is one of them, else the one of the lowest
// rank, or UINT32_MAX if there is none. Blocks up to find_ms for such an end, and shortly for
// sockets that are full. Afterwards the mesh can only be closed.
uint32_t cn_parting_run(struct cn_mesh *mesh, const struct cn_view *view, uint32_t accused,
                        uint32_t find_ms);
