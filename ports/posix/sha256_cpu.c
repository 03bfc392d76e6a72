#include "ports/posix/sha256_cpu.h"

#if defined(__x86_64__) || defined(__aarch64__)
#define STEPS 16 // each does four of the 64 rounds

static const uint32_t constants[4 * STEPS] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
#endif

#if defined(__x86_64__)
#include <immintrin.h>

// The SHA extensions hold the state as two registers, ABEF and CDGH, highest word first.
#define TARGET __attribute__((target("sha,sse4.1")))

TARGET static void hash_block(__m128i *abef, __m128i *cdgh, const uint8_t *data)
{
    const __m128i big_endian = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    __m128i first = *abef, second = *cdgh, words[4];

#pragma GCC unroll 16
    for (int i = 0; i < STEPS; i++) {
        __m128i *word = &words[i % 4], sum;

        if (i < 4) {
            *word = _mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i));
            *word = _mm_shuffle_epi8(*word, big_endian);
        } else {
            sum = _mm_alignr_epi8(words[(i + 3) % 4], words[(i + 2) % 4], 4);
            sum = _mm_add_epi32(sum, _mm_sha256msg1_epu32(*word, words[(i + 1) % 4]));
            *word = _mm_sha256msg2_epu32(sum, words[(i + 3) % 4]);
        }
        sum = _mm_add_epi32(
            *word, _mm_load_si128((const __m128i *)(const void *)(constants + (ptrdiff_t)4 * i)));
        second = _mm_sha256rnds2_epu32(second, first, sum);
        first = _mm_sha256rnds2_epu32(first, second, _mm_shuffle_epi32(sum, 0x0e));
    }
    *abef = _mm_add_epi32(*abef, first);
    *cdgh = _mm_add_epi32(*cdgh, second);
}

TARGET void cn_sha256_cpu_blocks(uint32_t state[8], const uint8_t *data, size_t count)
{
    __m128i *halves = (__m128i *)(void *)state;
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128(halves), 0xb1);      // CDAB
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128(halves + 1), 0x1b); // EFGH
    __m128i abef = _mm_alignr_epi8(low, high, 8);
    __m128i cdgh = _mm_blend_epi16(high, low, 0xf0);

    for (; count; count--, data += 64)
        hash_block(&abef, &cdgh, data);
    low = _mm_shuffle_epi32(abef, 0x1b);  // FEBA
    high = _mm_shuffle_epi32(cdgh, 0xb1); // DCHG
    _mm_storeu_si128(halves, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128(halves + 1, _mm_alignr_epi8(high, low, 8));
}

#elif defined(__aarch64__)
#include <arm_neon.h>

// CMakeLists.txt compiles this file with +crypto; cn_cpu_features decides whether it runs.
void cn_sha256_cpu_blocks(uint32_t state[8], const uint8_t *data, size_t count)
{
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4), words[4];

    for (; count; count--, data += 64) {
        uint32x4_t first = abcd, second = efgh;

#pragma GCC unroll 16
        for (int i = 0; i < STEPS; i++) {
            uint32x4_t *word = &words[i % 4], sum, before = first;

            if (i < 4)
                *word = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
            else
                *word = vsha256su1q_u32(vsha256su0q_u32(*word, words[(i + 1) % 4]),
                                        words[(i + 2) % 4], words[(i + 3) % 4]);
            sum = vaddq_u32(*word, vld1q_u32(constants + 4 * i));
            first = vsha256hq_u32(first, second, sum);
            second = vsha256h2q_u32(second, before, sum);
        }
        abcd = vaddq_u32(abcd, first);
        efgh = vaddq_u32(efgh, second);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}

#else

void cn_sha256_cpu_blocks(uint32_t state[8], const uint8_t *data, size_t count)
{
    (void)state;
    (void)data;
    (void)count;
}
#endif
