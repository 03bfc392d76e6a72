// compute_cuda.h - the compute port for NVIDIA GPUs. README.md says what it needs and its limits.
#pragma once

#include "runtime/port/compute.h"

// Keeps the contract of compute.h. open returns CN_ENOTSUP when there is no driver or no GPU that
// the port can use; it logs why, as a warning if config.wanted.
extern const struct cn_compute_ops cn_compute_cuda;
