// sealed.h - any bytes for a decoder of what ends in its digest: as they are, then with one that
// fits.
#pragma once

#include <stdlib.h>
#include <string.h>

#include "runtime/port/crypto.h"

static inline int try_sealed(const uint8_t *data, size_t size,
                             void (*try_bytes)(const uint8_t *bytes, size_t size))
{
    uint8_t *bytes = calloc(1, size + 1);

    if (!bytes)
        return 0;
    if (size)
        memcpy(bytes, data, size);
    try_bytes(bytes, size);
    if (size >= CN_DIGEST_SIZE) {
        cn_crypto_digest(bytes, size - CN_DIGEST_SIZE, bytes + size - CN_DIGEST_SIZE);
        try_bytes(bytes, size);
    }
    free(bytes);
    return 0;
}
