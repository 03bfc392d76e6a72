#include "runtime/group/link_probe.h"

#include <math.h>

#define PROBE_US 40000 // time of a probe, about

int64_t cn_probe_kbps(uint32_t size, uint64_t elapsed_us)
{
    return (int64_t)(2ull * size * 8000 / (elapsed_us ? elapsed_us : 1));
}

uint32_t cn_probe_larger(uint64_t elapsed_us)
{
    uint64_t size = CN_PROBE_SIZE * (uint64_t)PROBE_US / (elapsed_us ? elapsed_us : 1);

    return size < 2 * CN_PROBE_SIZE ? 0 : size < CN_PROBE_MOST ? (uint32_t)size : CN_PROBE_MOST;
}

static double slowest_of(const int64_t *kbps, uint32_t count)
{
    double slowest = (double)kbps[0];

    for (uint32_t r = 1; r < count; r++)
        slowest = fmin(slowest, (double)kbps[r]);
    return fmax(slowest, 1);
}

// In a sum each member sends (count - 1) / count of the bytes twice.
static double sent_share(uint32_t count)
{
    return 2.0 * (count - 1) / count;
}

uint32_t cn_probe_sum_size(const int64_t *kbps, uint32_t count)
{
    double size = slowest_of(kbps, count) * PROBE_US / 8000 / sent_share(count);

    size = fmax(CN_PROBE_SUM_LEAST, fmin(size, CN_PROBE_MOST));
    return (uint32_t)size / sizeof(float) * sizeof(float);
}

double cn_probe_sum_share(const int64_t *kbps, uint32_t count, uint32_t size, double elapsed_us,
                          double call_us)
{
    double travels_us = fmax(elapsed_us - 2.0 * (count - 1) * call_us, 1);

    return fmin(sent_share(count) * 8000.0 * size / travels_us / slowest_of(kbps, count), 1);
}
