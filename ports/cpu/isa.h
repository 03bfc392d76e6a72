// isa.h - the kernels for each instruction set of this build.
#pragma once

#include "ports/cpu/kernel.h"

// Those that CAIRN_CPU_KERNELS names in the environment (base, v3, v4), else the best that this
// machine has. NULL when the machine or the build lacks the ones named.
const struct cpu_kernels *cpu_isa_choose(void);
