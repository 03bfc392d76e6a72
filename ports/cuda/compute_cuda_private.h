// compute_cuda_private.h - for tests, which bring libraries of their own.
#pragma once

#include "ports/cuda/cuda_library.h"
#include "runtime/port/compute.h"

// As cn_compute_cuda.open, with these libraries. ops are what the device says it is.
cn_err cuda_open_with(const struct cuda_library *library, const struct cn_compute_ops *ops,
                      const struct cn_compute_config *config, struct cn_compute **device);
