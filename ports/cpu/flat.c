#include "ports/cpu/flat.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define GROUP 256 // numbers that are added up before their sum is added: see struct cn_hyper

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

// Returns the gradient that the optimizers start from. The contract fixes the order of operations.
// The compiler makes one loop for each combination of flags, because they do not change within it.
static inline float gradient_of(const struct cn_hyper *hyper, const struct cn_range *range,
                                const float *clip, const struct cpu_flat *flat, size_t i)
{
    float g = flat->gradients[i] * hyper->gradient_scale;

    if (clip)
        g = g * *clip;
    if (range->proximal)
        g = g + hyper->proximal * (flat->weights[i] - flat->base[i]);
    return g;
}

void cpu_flat_sgd(const struct cn_hyper *hyper, const struct cn_range *range, const float *clip,
                  const struct cpu_flat *given)
{
    const struct cn_hyper h = *hyper; // copies, so that no write below can change them
    const struct cn_range r = *range;
    const struct cpu_flat flat = *given;
    float *restrict weights = flat.weights, *restrict velocity = flat.first;
    const float c = clip ? *clip : 1;
    const float decay = r.no_decay ? 0 : h.weight_decay;

    for (size_t i = 0; i < flat.count; i++) {
        float d = gradient_of(&h, &r, clip ? &c : NULL, &flat, i) + decay * weights[i];

        velocity[i] = h.momentum * velocity[i] + d;
        d = r.nesterov ? d + h.momentum * velocity[i] : velocity[i];
        weights[i] = weights[i] - h.learning_rate * d;
    }
}

void cpu_flat_adam(const struct cn_hyper *hyper, const struct cn_range *range, const float *clip,
                   const struct cpu_flat *given)
{
    const struct cn_hyper h = *hyper;
    const struct cn_range r = *range;
    const struct cpu_flat flat = *given;
    const float c = clip ? *clip : 1;
    const float add1 = 1 - r.beta1, add2 = 1 - r.beta2;
    const float step = h.learning_rate / h.correction1;
    const float decay = r.no_decay ? 0 : h.weight_decay;
    const float shrink = h.learning_rate * decay;
    float *restrict weights = flat.weights;
    float *restrict first = flat.first, *restrict second = flat.second;

    for (size_t i = 0; i < flat.count; i++) {
        float g = gradient_of(&h, &r, clip ? &c : NULL, &flat, i);
        float w = weights[i];

        if (r.decoupled)
            w = w - shrink * w;
        else
            g = g + decay * w;
        first[i] = r.beta1 * first[i] + add1 * g;
        second[i] = r.beta2 * second[i] + add2 * (g * g);
        weights[i] = w - step * first[i] / (sqrtf(second[i]) / h.correction2 + r.epsilon);
    }
}

void cpu_flat_statistic(const struct cn_hyper *hyper, const struct cn_range *range,
                        const struct cpu_flat *flat)
{
    const float scale = hyper->statistic_scale, momentum = range->momentum;
    const float *restrict gradients = flat->gradients;
    float *restrict weights = flat->weights;

    for (size_t i = 0; i < flat->count; i++)
        weights[i] = weights[i] + momentum * (gradients[i] * scale - weights[i]);
}

double cpu_flat_squares(const float *gradients, size_t count, float scale)
{
    double sums[CPU_FLAT_CHUNK / GROUP];
    size_t groups = 0;

    for (size_t i = 0; i < count; i += GROUP) {
        size_t end = count - i < GROUP ? count : i + GROUP;
        double sum = 0;

        for (size_t j = i; j < end; j++) {
            double g = (double)(gradients[j] * scale);

            sum += g * g;
        }
        sums[groups++] = sum;
    }
    return cpu_flat_sum(sums, groups);
}

double cpu_flat_sum(double *sums, size_t count)
{
    if (!count)
        return 0;
    while (count > 1) {
        size_t groups = 0;

        for (size_t i = 0; i < count; i += GROUP) {
            size_t end = count - i < GROUP ? count : i + GROUP;
            double sum = 0;

            for (size_t j = i; j < end; j++)
                sum += sums[j];
            sums[groups++] = sum;
        }
        count = groups;
    }
    return sums[0];
}

float cpu_flat_clip(float clip, double norm)
{
    float c = clip / ((float)norm + 1e-6f);

    return c < 1 ? c : 1;
}
