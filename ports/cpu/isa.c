#include "ports/cpu/isa.h"

#include <stdlib.h>
#include <string.h>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "runtime/base/log.h"

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
// These levels of the x86-64 psABI are tested by the features that the kernels are compiled for.
static bool has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_v4(void)
{
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd");
}

extern const struct cpu_kernels cpu_v3_kernels;
extern const struct cpu_kernels cpu_v4_kernels;
#elif defined(__aarch64__)
// Armv8.2 with half precision and dot products: Cortex-A75 and later, Carmel, Neoverse.
static bool has_v82(void)
{
    return (getauxval(AT_HWCAP) & (HWCAP_ASIMDHP | HWCAP_ASIMDDP)) ==
           (HWCAP_ASIMDHP | HWCAP_ASIMDDP);
}

extern const struct cpu_kernels cpu_v82_kernels;
#endif
extern const struct cpu_kernels cpu_base_kernels;

// All kernels of this build, the best first.
static const struct variant {
    const char *name;
    const struct cpu_kernels *kernels;
    bool (*present)(void);
} variants[] = {
#if defined(__x86_64__)
    {"v4", &cpu_v4_kernels, has_v4},
    {"v3", &cpu_v3_kernels, has_v3},
#elif defined(__aarch64__)
    {"v82", &cpu_v82_kernels, has_v82},
#endif
    {"base", &cpu_base_kernels, always},
};

const struct cpu_kernels *cpu_isa_choose(void)
{
    const char *wanted = getenv("CAIRN_CPU_KERNELS");

#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
        if ((!wanted || !strcmp(wanted, variants[i].name)) && variants[i].present())
            return variants[i].kernels;
    cn_log(CN_LOG_ERROR, "cpu", "CAIRN_CPU_KERNELS=%s: this program or processor does not have it",
           wanted);
    return NULL;
}
