// compute_cpu.h - the compute port for processors. See README.md for what it does and its limits.
#pragma once

#include "runtime/port/compute.h"

extern const struct cn_compute_ops cn_compute_cpu;
