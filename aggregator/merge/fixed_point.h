// fixed_point.h - whole numbers that stand for the values of updates: the arithmetic of fold.h.
//
// A value v stands as v * 2^27, rounded to the nearest integer, ties to even. Values of an update
// have |v| <= 16, so its whole numbers have at most 2^31. Pure functions. Threading: none.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define CN_FIXED_BITS 27
#define CN_FIXED_FACTOR_BITS 32
#define CN_FIXED_ONE (1ull << CN_FIXED_FACTOR_BITS) // the factor 1

// Returns the whole number of a value. value * 2^27 is exact in double. Adding 1.5 * 2^52 leaves
// the nearest integer, ties to even, in the low bits.
static inline int64_t cn_fixed_of(float value)
{
    const double rounder = 6755399441055744.0;
    double shifted = (double)value * (double)(1 << CN_FIXED_BITS) + rounder;
    int64_t bits;
    int64_t rounder_bits;

    memcpy(&bits, &shifted, sizeof(bits));
    memcpy(&rounder_bits, &rounder, sizeof(rounder_bits));
    return bits - rounder_bits;
}

// Returns the square root, rounded up. square is below 2^126.
static inline uint64_t cn_fixed_root(unsigned __int128 square)
{
    uint64_t found = 0;

    for (uint64_t bit = 1ull << 62; bit; bit >>= 1) {
        uint64_t next = found | bit;

        if ((unsigned __int128)next * next <= square)
            found = next;
    }
    return (unsigned __int128)found * found < square ? found + 1 : found;
}

// Returns the lesser of two limits of a norm, in units of 2^-27; 0: none. max_norm is a norm, other
// is in units of 2^-27; 0 in either: no limit. A limit of 2^62 is above every norm: 2^32 values of
// 2^31 have the norm 2^47.
static inline uint64_t cn_fixed_limit(double max_norm, uint64_t other)
{
    double limit = max_norm * (double)(1 << CN_FIXED_BITS);
    uint64_t most = limit >= (double)(1ull << 62) ? 0 : (uint64_t)limit;

    return most && other ? (most < other ? most : other) : most + other;
}

// Returns the factor, in units of 2^-32 and at most 1, that scales a norm down to norm_max; 0 is no
// limit.
static inline uint64_t cn_fixed_factor(uint64_t norm_max, uint64_t norm)
{
    if (norm_max == 0 || norm <= norm_max)
        return CN_FIXED_ONE;
    return (uint64_t)(((unsigned __int128)norm_max << CN_FIXED_FACTOR_BITS) / norm);
}

// Returns fixed times factor, rounded towards zero. |fixed| <= 2^31 and factor <= 2^32.
static inline int64_t cn_fixed_scale(int64_t fixed, uint64_t factor)
{
    return factor == CN_FIXED_ONE ? fixed : fixed * (int64_t)factor / (int64_t)CN_FIXED_ONE;
}

// Returns the least change that does not make a variance negative.
static inline int64_t cn_fixed_least_change(float variance)
{
    double whole = floor(ldexp((double)variance, CN_FIXED_BITS));
    const double most = (double)(1ull << 31);

    return -(int64_t)(whole > most ? most : whole < -most ? -most : whole);
}

// Returns sum / (weight * 2^27), rounded once. weight is 1 to 2^31, |sum| at most 2^62. The
// dividend is shifted left until its second-highest bit is set, so the quotient has at least 31
// bits. A remainder sets the quotient's lowest bit, which is below the 24 bits that a float keeps
// and below their rounding bit.
static inline float cn_fixed_divide(int64_t sum, uint64_t weight)
{
    uint64_t magnitude = sum < 0 ? -(uint64_t)sum : (uint64_t)sum;
    unsigned shift;
    uint64_t quotient;
    uint32_t scale_bits;
    float scale;
    float mean;

    if (magnitude == 0)
        return 0;
    shift = (unsigned)__builtin_clzll(magnitude) - 1;
    magnitude <<= shift;
    quotient = magnitude / weight;
    quotient |= quotient * weight != magnitude;
    scale_bits = (127u - CN_FIXED_BITS - shift) << 23; // 2^-(27 + shift), a normal number
    memcpy(&scale, &scale_bits, sizeof(scale));
    mean = (float)(int64_t)quotient * scale;
    return sum < 0 ? -mean : mean;
}
