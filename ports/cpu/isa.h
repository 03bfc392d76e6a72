// isa.h - chooses among the kernels that this build has for different instruction sets.
#pragma once

#include "ports/cpu/kernel.h"

// Returns the kernels that CAIRN_CPU_KERNELS names in the environment (base, v3, v4, v82), else the
// best that this machine can run. Returns NULL, and logs it, if the machine or the build lacks the
// named ones. Threading: any.
const struct cpu_kernels *cpu_isa_choose(void);
