#include "aggregator/store/spool_bits.h"

#include <string.h>

uint32_t cn_spool_bits_find(const uint8_t *bits, bool set, uint32_t from, uint32_t end)
{
    const uint64_t skipped = set ? 0 : UINT64_MAX; // 64 bits of the other kind
    uint64_t word;
    uint32_t i = from;

    while (i < end) {
        if (i % 8 == 0 && end - i >= 64) {
            memcpy(&word, bits + i / 8, sizeof(word));
            if (word == skipped) {
                i += 64;
                continue;
            }
        }
        if (i % 8 == 0 && end - i >= 8 && bits[i / 8] == (uint8_t)skipped) {
            i += 8;
            continue;
        }
        if ((bits[i / 8] >> (i % 8) & 1) == set)
            return i;
        i++;
    }
    return end;
}
