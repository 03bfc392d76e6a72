// Any bytes as a stored registration: refused, or an answer that encodes and is read again. Owner
// and digest are made to fit for a second try. The first byte is the number of keys.
#include <stdlib.h>
#include <string.h>

#include "transport/registration_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OWNER_AT 8

static void try_bytes(const uint8_t *bytes, size_t size, const uint8_t owner[CN_DIGEST_SIZE],
                      uint32_t keys)
{
    struct cn_register_reply reply, back;
    uint8_t again[CN_REGISTRATION_MAX];
    size_t length;

    if (cn_registration_decode(bytes, size, owner, keys, &reply))
        return;
    if (cn_registration_encode(owner, &reply, keys, again, &length) ||
        cn_registration_decode(again, length, owner, keys, &back) ||
        memcmp(back.manifest.pair_keys, reply.manifest.pair_keys, (size_t)keys * CN_KEY_SIZE) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t owner[CN_DIGEST_SIZE] = {0};
    uint8_t *bytes;
    uint32_t keys;

    if (!size)
        return 0;
    keys = *data++;
    size--;
    bytes = malloc(size + 1);
    if (!bytes)
        return 0;
    memcpy(bytes, data, size);
    try_bytes(bytes, size, owner, keys);
    if (size >= OWNER_AT + 2 * (size_t)CN_DIGEST_SIZE) {
        memcpy(owner, bytes + OWNER_AT, CN_DIGEST_SIZE);
        cn_crypto_digest(bytes, size - CN_DIGEST_SIZE, bytes + size - CN_DIGEST_SIZE);
        try_bytes(bytes, size, owner, keys);
    }
    free(bytes);
    return 0;
}
