// compute_cuda.h - the compute port for NVIDIA GPUs. README.md says what it needs.
#pragma once

#include "runtime/port/compute.h"

extern const struct cn_compute_ops cn_compute_cuda;
