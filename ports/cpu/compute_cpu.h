// compute_cpu.h - the compute port for processors. README.md says what it does and its limits.
#pragma once

#include "runtime/port/compute.h"

// Keeps the contract of compute.h. open returns CN_ENOTSUP for any precision except float32 and for
// kernels that CAIRN_CPU_KERNELS names and this machine lacks, and CN_EINVAL for other than 1 to
// 1024 threads.
extern const struct cn_compute_ops cn_compute_cpu;
