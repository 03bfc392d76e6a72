#include "ports/cpu/flat.h"

#include <stdint.h>
#include <string.h>

void cpu_flat_add(float *restrict total, float *restrict part, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        total[i] += part[i];
        part[i] = 0;
    }
}

bool cpu_flat_finite(const float *values, size_t count)
{
    const uint32_t exponent = 0x7f800000u;
    uint32_t found = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, values + i, sizeof(bits));
        found |= (bits & exponent) == exponent;
    }
    return !found;
}

// The order of operations is the contract's.
void cpu_flat_sgd(const struct cn_hyper *hyper, const float *restrict gradient,
                  float *restrict weights, float *restrict momentum, size_t count)
{
    const float scale = hyper->gradient_scale, rate = hyper->learning_rate;
    const float keep = hyper->momentum, decay = hyper->weight_decay;

    for (size_t i = 0; i < count; i++) {
        float g = gradient[i] * scale;

        momentum[i] = keep * momentum[i] + (g + decay * weights[i]);
        weights[i] = weights[i] - rate * momentum[i];
    }
}
