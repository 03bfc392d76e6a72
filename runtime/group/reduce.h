// reduce.h - the arithmetic of a reduction, the same on every board and for every port.
#pragma once

#include "runtime/port/collective.h"

// Bytes of an element.
size_t cn_number_size(enum cn_number type);

// into[i] = into[i] how from[i]; CN_REDUCE_AVERAGE adds.
void cn_reduce_into(enum cn_number type, enum cn_reduce how, void *into, const void *from,
                    size_t count);

// The last step of CN_REDUCE_AVERAGE: data[i] = data[i] / members. Nothing for the others.
void cn_reduce_finish(enum cn_number type, enum cn_reduce how, void *data, size_t count,
                      uint32_t members);

// Rounds to nearest even; widening is exact.
void cn_reduce_narrow(uint16_t *bfloats, const float *floats, size_t count);
void cn_reduce_widen(float *floats, const uint16_t *bfloats, size_t count);

// The sum of a share that travels narrow: adds what each of the others has of it, count numbers one
// behind the other in the order of their places, and rounds once.
void cn_reduce_narrow_sum(float *share, size_t count, const uint16_t *parts, uint32_t others,
                          uint16_t *sum);

// Share number share of count elements over members: see enum cn_collective_kind.
size_t cn_reduce_share(size_t count, uint32_t members, uint32_t share, size_t *first);
