// describe.h - names and costs of calls of the compute port, for people.
#pragma once

#include "runtime/port/compute.h"

// Returns the name of an op: "convolution", "product", ... A static string.
const char *cn_describe_op(enum cn_op op);

// Returns the additions and multiplications of a call for one sample. Elementwise work is not
// counted, as is usual.
double cn_describe_flops(const struct cn_call *call);
