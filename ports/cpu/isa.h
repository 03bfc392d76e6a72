// isa.h - the kernels for each instruction set of this build, and the best one this machine has.
#pragma once

#include "ports/cpu/kernel.h"

const struct cpu_kernels *cpu_isa_best(void);
