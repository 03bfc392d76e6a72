// parting.h - the end of a mesh after an error: who is to blame, and who only gives up.
//
// A member that is lost takes its connections with it, and each survivor then closes its own. So
// that nobody takes a survivor for the lost member, a survivor first tells the others that it gives
// up; a connection that ends without that word belongs to a lost member.
//
// Threading: one thread.
#pragma once

#include "ports/tcp/mesh.h"

// Tells all members that this one gives up, and returns the index in the member list of one whose
// connection has ended without a word: accused if that is one, else the lowest. Waits up to find_ms
// for such an end, and shortly for sockets that are full. UINT32_MAX if there is none. The mesh can
// only be closed afterwards.
uint32_t cn_parting_run(struct cn_mesh *mesh, const struct cn_view *view, uint32_t accused,
                        uint32_t find_ms);
