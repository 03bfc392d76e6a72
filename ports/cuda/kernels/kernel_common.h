// kernel_common.h - functions that several kernel files share.
#pragma once

#include "ports/cuda/kernels/kernel_language.h"
#include "ports/cuda/kernels/kernels.h"

// Returns this thread's first element. A grid is smaller than most work, so a thread takes every
// index_step()-th element.
DEVICE uint32_t first_index(void)
{
    return block_index() * block_size() + thread_index();
}

DEVICE uint32_t index_step(void)
{
    return grid_size() * block_size();
}

// Returns whether the call adds to its output. The host has resolved CN_WRITE_STEP.
DEVICE bool adds(const struct cuda_args *a)
{
    return a->call.write == CN_WRITE_ADD;
}

// Sets *place to value, or adds value to it.
DEVICE void put(float *place, float value, bool add)
{
    *place = add ? *place + value : value;
}

// Returns the number of samples of the run. Sums over samples have this many terms.
DEVICE uint32_t run_samples(const struct cuda_args *a)
{
    return a->once ? 1 : a->hyper->samples;
}

// Returns the number of samples that an elementwise call computes: one if all samples share the
// result.
DEVICE uint32_t output_samples(const struct cuda_args *a)
{
    return a->call.out[0].stride ? a->samples : 1;
}

// Returns the word of element i, where i counts over all samples of count elements.
DEVICE size_t word_of(uint32_t i, uint32_t count, size_t stride)
{
    return stride == count ? i : (size_t)(i / count) * stride + i % count;
}

// Rounds to 16 bits, to nearest, ties to even. A NaN stays a NaN. Likewise to_float16.
DEVICE uint32_t to_bfloat16(float value)
{
    uint32_t bits = float_bits(value);

    if (value != value)
        return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

DEVICE uint32_t to_float16(float value)
{
    uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;

    if (size > 0x7f800000)
        return sign | 0x7e00;
    if (size >= 0x477ff000) // rounds to 65536 or more
        return sign | 0x7c00;
    if (size < 0x38800000) { // subnormal: adding 1/2 leaves the rounded bits at the end
        float sum = bits_float(size) + 0.5f;

        return sign | (float_bits(sum) - float_bits(0.5f));
    }
    size -= 112u << 23; // the difference of the exponents' biases
    return sign | (size + 0xfff + (size >> 13 & 1)) >> 13;
}

DEVICE float from_float16(uint32_t half)
{
    uint32_t sign = (half & 0x8000) << 16, size = half & 0x7fff;

    if (size >= 0x7c00)
        return bits_float(sign | 0x7f800000 | (size & 0x3ff) << 13);
    if (size < 0x400) // subnormal: a multiple of 2^-24
        return bits_float(sign | float_bits((float)size * 5.9604644775390625e-8f));
    return bits_float(sign | ((size << 13) + (112u << 23)));
}

// Returns the sum of value over the warp, in every lane; likewise the next two.
DEVICE float warp_sum(float value)
{
    for (uint32_t mask = CUDA_WARP / 2; mask; mask /= 2)
        value += warp_swap(value, mask);
    return value;
}

DEVICE double warp_sum_double(double value)
{
    for (uint32_t mask = CUDA_WARP / 2; mask; mask /= 2)
        value += warp_swap_double(value, mask);
    return value;
}

DEVICE float warp_max(float value)
{
    for (uint32_t mask = CUDA_WARP / 2; mask; mask /= 2)
        value = fmaxf(value, warp_swap(value, mask));
    return value;
}

// Returns the sum over the threads of a block, in every thread; likewise block_max.
DEVICE float block_sum(float value)
{
    SHARED float part[CUDA_THREADS / CUDA_WARP];
    uint32_t warps = block_size() / CUDA_WARP;
    float sum = 0;

    value = warp_sum(value);
    block_sync(); // an earlier call may still be read
    if (thread_index() % CUDA_WARP == 0)
        part[thread_index() / CUDA_WARP] = value;
    block_sync();
    for (uint32_t i = 0; i < warps; i++)
        sum += part[i];
    return sum;
}

// Returns the sum over the threads of a block that have the same lane, in each of them.
DEVICE float lane_sum(float value)
{
    SHARED float parts[CUDA_THREADS];
    float sum = 0;

    block_sync();
    parts[thread_index()] = value;
    block_sync();
    for (uint32_t i = thread_index() % CUDA_WARP; i < block_size(); i += CUDA_WARP)
        sum += parts[i];
    return sum;
}

DEVICE float block_max(float value)
{
    SHARED float part[CUDA_THREADS / CUDA_WARP];
    uint32_t warps = block_size() / CUDA_WARP;

    value = warp_max(value);
    block_sync();
    if (thread_index() % CUDA_WARP == 0)
        part[thread_index() / CUDA_WARP] = value;
    block_sync();
    for (uint32_t i = 0; i < warps; i++)
        value = fmaxf(value, part[i]);
    return value;
}

// The threads that work on a row together: a warp, or with args.wide a block.
struct team {
    uint32_t lane, width; // this thread's number in the team; threads of the team
    uint32_t first, step; // first row of this team; rows from one of its rows to the next
    bool wide;
};

// Returns the team of this thread.
DEVICE struct team team_of(const struct cuda_args *a)
{
    uint32_t warps = block_size() / CUDA_WARP;
    struct team team;

    team.wide = a->wide;
    team.width = a->wide ? block_size() : CUDA_WARP;
    team.lane = thread_index() % team.width;
    team.first = a->wide ? block_index() : block_index() * warps + thread_index() / CUDA_WARP;
    team.step = a->wide ? grid_size() : grid_size() * warps;
    return team;
}

// Returns the sum over the team, in every thread; likewise team_max.
DEVICE float team_sum(const struct team *team, float value)
{
    return team->wide ? block_sum(value) : warp_sum(value);
}

DEVICE float team_max(const struct team *team, float value)
{
    return team->wide ? block_max(value) : warp_max(value);
}
