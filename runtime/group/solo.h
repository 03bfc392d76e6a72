// solo.h - the collective of a group of one member. It never blocks and uses no network.
#pragma once

#include "runtime/port/collective.h"

extern const struct cn_collective_ops cn_collective_solo;
