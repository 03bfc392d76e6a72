// kernels_present.h - for tests that run once with each set of the CPU port's kernels.
#pragma once

#include "ports/cpu/compute_cpu.h"

// Returns false when the processor lacks the kernels that CAIRN_CPU_KERNELS asks for.
static inline bool kernels_present(void)
{
    const struct cn_compute_config config = {.threads = 1};
    struct cn_compute *device;

    if (cn_compute_cpu.open(&config, &device))
        return false;
    cn_compute_cpu.close(device);
    return true;
}
