// kernel_language.h - the language of the kernels: CUDA C++ under nvcc, C17 for the tests.
//
// A kernel file uses C only, and the names below for the additions of CUDA. So the tests can run
// the same text on the host (tests/support). All grids and blocks have one dimension. A block has a
// multiple of 32 threads, at most CUDA_THREADS.
//
// All threads of a block must reach block_sync, and all threads of a warp the functions that begin
// with warp_. warp_swap returns the value of the lane whose number differs from this lane's in the
// bits of mask. warp_read returns the value of the given lane, and warp_ballot returns the votes of
// all lanes, one bit for each.
//
// Two blocks of a KERNEL_OF_TWO share a multiprocessor: a thread has 128 registers at most.
//
// UNROLL before a loop of constant length keeps the small arrays that it indexes in registers.
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define CUDA_THREADS 256
#define CUDA_WARP 32
#define ALIGNED(bytes) __attribute__((aligned(bytes)))

#ifdef __CUDACC__

#define KERNEL(name)                                                                               \
    extern "C" __global__ void __launch_bounds__(CUDA_THREADS)                                     \
        cuda_kernel_##name(const __grid_constant__ struct cuda_args a)
#define KERNEL_OF_TWO(name)                                                                        \
    extern "C" __global__ void __launch_bounds__(CUDA_THREADS, 2)                                  \
        cuda_kernel_##name(const __grid_constant__ struct cuda_args a)
// Not static: nvcc puts a digest of the source's path into the names of what is static, so the code
// would depend on the folder that it was built in.
#define DEVICE __device__ __forceinline__
#define SHARED __shared__
#define UNROLL _Pragma("unroll")

DEVICE uint32_t thread_index(void)
{
    return threadIdx.x;
}
DEVICE uint32_t block_size(void)
{
    return blockDim.x;
}
DEVICE uint32_t block_index(void)
{
    return blockIdx.x;
}
DEVICE uint32_t grid_size(void)
{
    return gridDim.x;
}
DEVICE void block_sync(void)
{
    __syncthreads();
}
DEVICE float warp_swap(float value, uint32_t mask)
{
    return __shfl_xor_sync(0xffffffffu, value, (int)mask);
}
DEVICE double warp_swap_double(double value, uint32_t mask)
{
    return __shfl_xor_sync(0xffffffffu, value, (int)mask);
}
DEVICE float warp_read(float value, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, value, (int)lane);
}
DEVICE uint32_t warp_ballot(bool vote)
{
    return __ballot_sync(0xffffffffu, vote);
}

// Each of these functions rounds once. The compiler never fuses them (no FMA).
DEVICE float exact_add(float a, float b)
{
    return __fadd_rn(a, b);
}
DEVICE float exact_subtract(float a, float b)
{
    return __fsub_rn(a, b);
}
DEVICE float exact_multiply(float a, float b)
{
    return __fmul_rn(a, b);
}
DEVICE float exact_divide(float a, float b)
{
    return __fdiv_rn(a, b);
}
DEVICE float exact_root(float a)
{
    return __fsqrt_rn(a);
}
DEVICE double exact_add_double(double a, double b)
{
    return __dadd_rn(a, b);
}
DEVICE double exact_multiply_double(double a, double b)
{
    return __dmul_rn(a, b);
}

DEVICE uint32_t float_bits(float value)
{
    return __float_as_uint(value);
}
DEVICE float bits_float(uint32_t bits)
{
    return __uint_as_float(bits);
}

// Rounds towards zero. A NaN becomes 0, a number out of range the nearest int32.
DEVICE int32_t float_to_int(float value)
{
    return __float2int_rz(value);
}

#else

#include <string.h>

#define KERNEL(name) void cuda_kernel_##name(const struct cuda_args a)
#define KERNEL_OF_TWO(name) KERNEL(name)
#define DEVICE static inline __attribute__((unused))
#define SHARED static _Thread_local
#define UNROLL

// The position of the one thread that runs. tests/support/cuda_host_kernels.c keeps it and switches
// threads.
struct cuda_host_place {
    uint32_t thread, threads, block, blocks;
};
extern _Thread_local struct cuda_host_place cuda_host_place;
void cuda_host_block_sync(void);

// Replaces value by that of lane `from`.
void cuda_host_warp_swap(void *value, size_t size, uint32_t from);
uint32_t cuda_host_warp_ballot(bool vote);

DEVICE uint32_t thread_index(void)
{
    return cuda_host_place.thread;
}
DEVICE uint32_t block_size(void)
{
    return cuda_host_place.threads;
}
DEVICE uint32_t block_index(void)
{
    return cuda_host_place.block;
}
DEVICE uint32_t grid_size(void)
{
    return cuda_host_place.blocks;
}
DEVICE void block_sync(void)
{
    cuda_host_block_sync();
}
DEVICE float warp_swap(float value, uint32_t mask)
{
    cuda_host_warp_swap(&value, sizeof(value), (thread_index() % CUDA_WARP) ^ mask);
    return value;
}
DEVICE double warp_swap_double(double value, uint32_t mask)
{
    cuda_host_warp_swap(&value, sizeof(value), (thread_index() % CUDA_WARP) ^ mask);
    return value;
}
DEVICE float warp_read(float value, uint32_t lane)
{
    cuda_host_warp_swap(&value, sizeof(value), lane);
    return value;
}
DEVICE uint32_t warp_ballot(bool vote)
{
    return cuda_host_warp_ballot(vote);
}

// The project's compiler settings forbid contraction to FMA.
DEVICE float exact_add(float a, float b)
{
    return a + b;
}
DEVICE float exact_subtract(float a, float b)
{
    return a - b;
}
DEVICE float exact_multiply(float a, float b)
{
    return a * b;
}
DEVICE float exact_divide(float a, float b)
{
    return a / b;
}
DEVICE float exact_root(float a)
{
    return sqrtf(a);
}
DEVICE double exact_add_double(double a, double b)
{
    return a + b;
}
DEVICE double exact_multiply_double(double a, double b)
{
    return a * b;
}

DEVICE uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}
DEVICE float bits_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

DEVICE int32_t float_to_int(float value)
{
    if (value != value)
        return 0;
    if (value >= 2147483648.0f)
        return INT32_MAX;
    return value < -2147483648.0f ? INT32_MIN : (int32_t)value;
}

#endif

// Four neighbouring words. A thread moves them at once, if their address is a multiple of 16.
struct four {
    ALIGNED(16) float at[4];
};

DEVICE struct four load_four(const float *from)
{
    return *(const struct four *)(const void *)from;
}

DEVICE void store_four(float *to, struct four four)
{
    *(struct four *)(void *)to = four;
}

// Two neighbouring words, likewise at a multiple of 8.
struct two {
    ALIGNED(8) float at[2];
};

DEVICE void store_two(float *to, struct two two)
{
    *(struct two *)(void *)to = two;
}

struct two_words {
    ALIGNED(8) uint32_t at[2];
};

DEVICE void store_two_words(uint32_t *to, struct two_words two)
{
    *(struct two_words *)(void *)to = two;
}
