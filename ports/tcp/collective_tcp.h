// collective_tcp.h - the collective over encrypted TCP pairs.
//
// Large reductions go around a ring, small ones directly between all members.
#pragma once

#include "runtime/port/collective.h"

// Keeps the contract of collective.h. In addition:
// - open returns CN_ESTALE when a member is in a later epoch, and CN_EEXIST when the port is taken.
// - lost names a member that this one was connected to in the call. That member may be a survivor
//   that closed its connections because another one failed.
extern const struct cn_collective_ops cn_collective_tcp;
