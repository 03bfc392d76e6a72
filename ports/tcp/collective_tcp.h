// collective_tcp.h - the collective over encrypted TCP pairs: rings for much data, a direct
// exchange for little.
#pragma once

#include "runtime/port/collective.h"

// The contract of collective.h. In addition:
// - open returns CN_ESTALE when a member is in a later epoch, CN_EEXIST when the port is taken.
// - lost names a member that is connected with this one in the call. It may be a survivor that
// passed
//   the error on by closing.
extern const struct cn_collective_ops cn_collective_tcp;
