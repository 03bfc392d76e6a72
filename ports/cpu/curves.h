// curves.h - exp, sigmoid and tanh of a vector, with a relative error of about 2e-7; erf with an
// error of 1e-7.
#pragma once

#include <stdbool.h>

#include "ports/cpu/tile.h"

typedef int32_t curve_bits __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

// Returns `yes` in the elements where all bits of `which` are set, and `no` where no bit is set.
ALWAYS_INLINE vector curve_choose(curve_bits which, vector yes, vector no)
{
    return (vector)((which & (curve_bits)yes) | (~which & (curve_bits)no));
}

// Computes exp(x) = 2^n exp(r) with |r| <= ln(2) / 2, where the series to r^7 leaves an error of
// 5e-9. Results are limited to [exp(-87), exp(88)]; a NaN stays a NaN.
ALWAYS_INLINE vector curve_exp(vector x)
{
    const vector shift = (vector){0} + 12582912.0f; // 1.5 * 2^23: adding it rounds to integers
    vector n, r, sum;

    x = curve_choose(x < -87.0f, (vector){0} - 87.0f, x);
    x = curve_choose(x > 88.0f, (vector){0} + 88.0f, x);
    n = x * 1.44269504f + shift;
    // Subtracts n ln(2) in two parts; the first has few digits, so its product is exact.
    r = x - (n - shift) * 0.693359375f;
    r = r + (n - shift) * 2.12194440e-4f;
    sum = 1.0f / 5040 * r + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1;
    sum = sum * r + 1;
    return sum * (vector)(((curve_bits)n - (curve_bits)shift + 127) << 23);
}

// Computes 1 / (1 + exp(-x)).
ALWAYS_INLINE vector curve_sigmoid(vector x)
{
    return 1 / (1 + curve_exp(-x));
}

// Computes 1 - 2 / (exp(2 x) + 1); near 0, the series to x^9.
ALWAYS_INLINE vector curve_tanh(vector x)
{
    vector square = x * x;
    vector sum = 62.0f / 2835 * square - 17.0f / 315;

    sum = sum * square + 2.0f / 15;
    sum = sum * square - 1.0f / 3;
    return curve_choose(square < 0.0625f, x + x * square * sum, 1 - 2 / (curve_exp(2 * x) + 1));
}

// Computes, for |x| < 1, x + x P(x^2). Beyond, it computes 1 - t Q(t) exp(-x^2) with the t of
// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26. P and Q are fitted by least
// squares at Chebyshev's points. density is exp(-x^2).
ALWAYS_INLINE vector curve_erf(vector x, vector density)
{
    vector size = curve_choose(x < 0, -x, x), square = x * x;
    vector t = 1 / (1 + 0.3275911f * size);
    vector sum = 0.311985589f * t - 0.0919192478f;
    vector small = 7.88249711e-5f * square - 8.01885499e-4f;

    sum = sum * t + 0.255265733f;
    sum = sum * t + 0.154301767f;
    sum = sum * t + 0.185873436f;
    sum = sum * t + 0.184946853f;
    sum = 1 - sum * t * density;
    small = small * square + 5.18931194e-3f;
    small = small * square - 2.68543288e-2f;
    small = small * square + 0.112835975f;
    small = small * square - 0.376126269f;
    small = small * square + 0.128379166f;
    small = x + x * small;
    return curve_choose(size < 1, small, curve_choose(x < 0, -sum, sum));
}
