// reduce.h - the arithmetic of a reduction, the same on every board and for every port.
//
// Threading: none; pure.
#pragma once

#include "runtime/port/collective.h"

// Returns the bytes of an element.
size_t cn_number_size(enum cn_number type);

// Computes into[i] = into[i] op from[i], where `how` is the op; CN_REDUCE_AVERAGE adds.
void cn_reduce_into(enum cn_number type, enum cn_reduce how, void *into, const void *from,
                    size_t count);

// Does the last step of CN_REDUCE_AVERAGE: data[i] = data[i] / members. Does nothing for the other
// ops.
void cn_reduce_finish(enum cn_number type, enum cn_reduce how, void *data, size_t count,
                      uint32_t members);

// Convert between float32 and bfloat16. Narrowing rounds to nearest even; widening is exact.
void cn_reduce_narrow(uint16_t *bfloats, const float *floats, size_t count);
void cn_reduce_widen(float *floats, const uint16_t *bfloats, size_t count);

// Sums a share that travels as bfloat16. Adds the parts of the other members to share: count
// numbers of each, one member after the other in the order of their places. Rounds once, into sum.
void cn_reduce_narrow_sum(float *share, size_t count, const uint16_t *parts, uint32_t others,
                          uint16_t *sum);

// Returns the size of a share of count elements over members, and its first element: see enum
// cn_collective_kind.
size_t cn_reduce_share(size_t count, uint32_t members, uint32_t share, size_t *first);
