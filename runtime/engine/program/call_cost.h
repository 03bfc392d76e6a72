// call_cost.h - what a call of the compute port takes at least: arithmetic and memory traffic.
//
// A roofline needs both (Williams, Waterman and Patterson, "Roofline", CACM 2009). Each operand is
// counted as read or written once, and twice where a call adds to it. So the count is that of a
// device whose cache keeps the operands of one call and nothing for the next call. An exception is
// batch normalization in training, which counts its samples twice: it needs two passes over them.
#pragma once

#include "runtime/port/compute.h"

struct cn_call_cost {
    double flops; // additions and multiplications, see cn_describe_flops
    double bytes;
};

// Returns the cost of a call for a batch of samples. Of a gather it counts the rows that are taken.
struct cn_call_cost cn_call_cost(const struct cn_call *call, uint32_t samples);
