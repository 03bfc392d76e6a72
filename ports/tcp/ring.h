// ring.h - the collective over encrypted TCP pairs: ring reduce-scatter and all-gather.
#pragma once

#include "runtime/port/collective.h"

// The contract of collective.h. In addition:
// - open returns CN_ESTALE when a neighbour is in a later epoch, CN_EEXIST when the port is taken.
// - lost names a neighbour in the ring. It may be a survivor that passed the error on by closing.
// - CN_ECONFLICT: the previous rank issued another call than this one.
extern const struct cn_collective_ops cn_collective_tcp;
