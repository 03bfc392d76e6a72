#include "ports/posix/cpu_features.h"

#include <stdatomic.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <cpuid.h>

static unsigned detect(void)
{
    unsigned a, b, c, d, found = 0;

    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    found |= c & bit_SSE4_2 ? CN_CPU_CRC : 0;
    if (c & bit_SSE4_1 && c & bit_SSSE3 && __get_cpuid_count(7, 0, &a, &b, &c, &d))
        found |= b & bit_SHA ? CN_CPU_SHA : 0;
    return found;
}

#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

static unsigned detect(void)
{
    unsigned long has = getauxval(AT_HWCAP);

    return (has & HWCAP_SHA2 ? CN_CPU_SHA : 0) | (has & HWCAP_CRC32 ? CN_CPU_CRC : 0);
}

#else

static unsigned detect(void)
{
    return 0;
}
#endif

// Caches the answer, because CPUID traps and takes about a microsecond in a virtual machine.
// Threads that ask at the same time store the same value.
unsigned cn_cpu_features(void)
{
    static atomic_uint known;
    unsigned features = atomic_load_explicit(&known, memory_order_relaxed);

    if (!features) {
        features = CN_CPU_ASKED | (getenv("CAIRN_CPU_PLAIN") ? 0 : detect());
        atomic_store_explicit(&known, features, memory_order_relaxed);
    }
    return features;
}
