// kernel_mma.h - products of small matrices of 16-bit numbers, summed in float32, on tensor cores.
//
// The 32 threads of a warp hold a matrix together (PTX ISA, "Matrix fragments for mma.m16n8k16" and
// "ldmatrix"). Below, g is the lane's number / 4 and t its number % 4. Two neighbours of 16 bits
// lie in a word, the first in its lower half:
//
// - left, 16 x 16: words 0 to 3 hold rows g, g + 8, g, g + 8, of columns 2t and 2t + 1, in words 2
//   and 3 of columns 2t + 8 and 2t + 9;
// - right, 16 x 8: words 0 and 1 hold column g, of rows 2t and 2t + 1, in word 1 of 2t + 8 and 2t +
// 9;
// - sums, 16 x 8: numbers 0 to 3 are of rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1.
//
// So the sums of two products side by side, rounded and packed, are the left factor of the next
// product. All threads of a warp must reach these functions together. `half`, a constant, says that
// the format is float16; otherwise it is bfloat16.
#pragma once

#include "ports/cuda/kernels/kernel_common.h"

#ifdef __CUDACC__

// Returns two numbers rounded to 16 bits.
DEVICE uint32_t round_two(float low, float high, bool half)
{
    uint32_t two;

    if (half)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

// Returns 2^exponent, with an error of 2 units in the last place. Results below 2^-126 are 0.
DEVICE float power_of_two(float exponent)
{
    float power;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
    return power;
}

// Loads four matrices of 8 x 8: matrix i to word i. Lane 8 i + r gives row r of matrix i, whose
// eight numbers begin at a multiple of 16 bytes in shared memory. A thread gets row g, columns 2t
// and 2t + 1; if transposed, column g, rows 2t and 2t + 1.
DEVICE void load_matrices(uint32_t to[4], const uint32_t *row, bool transposed)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(row);

    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address)
                     : "memory");
}

// Adds left times right to the sums. volatile: it stays where all threads of a warp are.
DEVICE void add_mma(float sums[4], const uint32_t left[4], const uint32_t right[2], bool half)
{
    if (half)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
                       "r"(right[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
                       "r"(right[1]));
}

#else

DEVICE uint32_t round_two(float low, float high, bool half)
{
    return half ? to_float16(low) | to_float16(high) << 16
                : to_bfloat16(low) | to_bfloat16(high) << 16;
}

DEVICE float power_of_two(float exponent)
{
    return exponent < -126 ? 0 : exp2f(exponent);
}

DEVICE void warp_wait(void)
{
    (void)warp_ballot(true);
}

DEVICE void load_matrices(uint32_t to[4], const uint32_t *row, bool transposed)
{
    SHARED const uint32_t *rows[CUDA_THREADS];
    const uint32_t *const *of_warp = &rows[thread_index() / CUDA_WARP * CUDA_WARP];
    uint32_t g = thread_index() % CUDA_WARP / 4, t = thread_index() % 4;

    rows[thread_index()] = row;
    warp_wait();
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t *const *matrix = &of_warp[8 * i];
        uint32_t low = matrix[2 * t][g / 2] >> g % 2 * 16 & 0xffff;
        uint32_t high = matrix[2 * t + 1][g / 2] >> g % 2 * 16 & 0xffff;

        to[i] = transposed ? low | high << 16 : matrix[g][t];
    }
    warp_wait(); // the rows were read
}

// Returns number i, 0 or 1, of a word.
DEVICE float number_of(uint32_t word, uint32_t i, bool half)
{
    uint32_t bits = word >> 16 * i & 0xffff;

    return half ? from_float16(bits) : bits_float(bits << 16);
}

struct mma_factors {
    uint32_t left[4], right[2];
};

// Adds up the terms in their order. The order in which tensor cores add is not documented.
DEVICE void add_mma(float sums[4], const uint32_t left[4], const uint32_t right[2], bool half)
{
    SHARED struct mma_factors factors[CUDA_THREADS];
    const struct mma_factors *of_warp = &factors[thread_index() / CUDA_WARP * CUDA_WARP];
    uint32_t g = thread_index() % CUDA_WARP / 4, t = thread_index() % 4;

    memcpy(factors[thread_index()].left, left, sizeof(factors->left));
    memcpy(factors[thread_index()].right, right, sizeof(factors->right));
    warp_wait();
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t k = 0; k < 16; k++) {
            const struct mma_factors *row = &of_warp[4 * g + k % 8 / 2];
            const struct mma_factors *col = &of_warp[4 * (2 * t + i % 2) + k % 8 / 2];

            sums[i] += number_of(row->left[i / 2 + k / 8 * 2], k % 2, half) *
                       number_of(col->right[k / 8], k % 2, half);
        }
    warp_wait(); // the factors were read
}

#endif
