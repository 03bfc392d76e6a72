// describe.h - what a call of the compute port is called and costs, for people.
#pragma once

#include "runtime/port/compute.h"

// "convolution", "product", ...
const char *cn_describe_op(enum cn_op op);

// Additions and multiplications of a call for one sample. Work on single elements is not counted,
// as is usual.
double cn_describe_flops(const struct cn_call *call);
