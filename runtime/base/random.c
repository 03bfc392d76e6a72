#include "runtime/base/random.h"

static void round_once(uint32_t counter[4], uint32_t key0, uint32_t key1)
{
    uint64_t product0 = 0xd2511f53ull * counter[0];
    uint64_t product1 = 0xcd9e8d57ull * counter[2];
    uint32_t next0 = (uint32_t)(product1 >> 32) ^ counter[1] ^ key0;
    uint32_t next2 = (uint32_t)(product0 >> 32) ^ counter[3] ^ key1;

    counter[1] = (uint32_t)product1;
    counter[3] = (uint32_t)product0;
    counter[0] = next0;
    counter[2] = next2;
}

void cn_random_block(uint64_t key, uint64_t counter_high, uint64_t counter_low, uint32_t out[4])
{
    uint32_t key0 = (uint32_t)key;
    uint32_t key1 = (uint32_t)(key >> 32);

    out[0] = (uint32_t)counter_low;
    out[1] = (uint32_t)(counter_low >> 32);
    out[2] = (uint32_t)counter_high;
    out[3] = (uint32_t)(counter_high >> 32);
    for (int i = 0; i < 10; i++) {
        round_once(out, key0, key1);
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}

// Four Feistel rounds over 2 * half_bits bits.
static uint64_t feistel(uint64_t key, unsigned half_bits, uint64_t value)
{
    uint64_t mask = (1ull << half_bits) - 1;
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;

    for (uint64_t i = 0; i < 4; i++) {
        uint32_t block[4];
        uint64_t next;

        cn_random_block(key, i, right, block);
        next = left ^ (((uint64_t)block[1] << 32 | block[0]) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t cn_random_permute(uint64_t key, uint64_t count, uint64_t index)
{
    unsigned half_bits = 1;

    while (half_bits < 32 && (count - 1) >> (2 * half_bits))
        half_bits++;
    // Cycle walking: permutes the numbers below a power of four >= count, again and again until the
    // result is below count.
    do {
        index = feistel(key, half_bits, index);
    } while (index >= count);
    return index;
}
