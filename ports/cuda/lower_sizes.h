// lower_sizes.h - how large the operands of a batch call are. The sizes saturate: callers compare
// them with limits, which a saturated product exceeds.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/port/compute.h"

// Multiplies and saturates.
uint64_t cuda_times(uint64_t a, uint64_t b);
uint64_t cuda_product_of(const size_t *dims, uint32_t rank);

// Returns the number of gates of a recurrent cell.
size_t cuda_gates_of(const struct cn_recurrent *op);

// Returns the elements of the largest operand that each sample has its own of, for one sample;
// UINT64_MAX when this port cannot do the call.
uint64_t cuda_call_elements(const struct cn_call *call);

// Returns the elements of the largest operand that all samples share.
uint64_t cuda_call_shared(const struct cn_call *call);
