// hash.h - a quick hash, for tables and for noticing changes.
//
// It is not cryptographic: equal hashes of different bytes are easy to make.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Returns 64 bits of FNV-1a.
static inline uint64_t cn_hash64(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}
