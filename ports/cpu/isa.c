#include "ports/cpu/isa.h"

extern const struct cpu_kernels cpu_base_kernels;
#if defined(__x86_64__)
extern const struct cpu_kernels cpu_v3_kernels;
extern const struct cpu_kernels cpu_v4_kernels;
#endif

const struct cpu_kernels *cpu_isa_best(void)
{
#if defined(__x86_64__)
    // The levels of the x86-64 psABI, by the features the kernels are compiled for.
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd"))
        return &cpu_v4_kernels;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        return &cpu_v3_kernels;
#endif
    return &cpu_base_kernels;
}
