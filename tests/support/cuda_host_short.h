// cuda_host_short.h - what numbers of 16 bits are worth, for the doubles of the libraries.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float cuda_host_from_float16(uint16_t bits)
{
    float size = (float)(bits & 0x3ff) / 1024;
    int exponent = bits >> 10 & 31;

    size = exponent ? (1 + size) * (float)(1u << (exponent > 15 ? exponent - 15 : 0)) /
                          (float)(1u << (exponent < 15 ? 15 - exponent : 0))
                    : size / 16384;
    return bits & 0x8000 ? -size : size;
}

static inline float cuda_host_from_bfloat16(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}
