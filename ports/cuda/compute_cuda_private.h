// compute_cuda_private.h - opens the port for tests, which supply libraries of their own.
#pragma once

#include "ports/cuda/cuda_library.h"
#include "runtime/port/compute.h"

// As cn_compute_cuda.open, with the given libraries, which are copied. ops become the device's
// operations. The caller closes the libraries after an error; close does it otherwise.
cn_err cuda_open_with(const struct cuda_library *library, const struct cn_compute_ops *ops,
                      const struct cn_compute_config *config, struct cn_compute **device);
