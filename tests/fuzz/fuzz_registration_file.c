// Any bytes as a stored registration, read by the owner and with the number of keys that they name:
// refused, or an answer that is stored and read again. The digest is made to fit for a second try.
#include "tests/fuzz/sealed.h"
#include "transport/board/registration_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OWNER_AT 8 // CHECKPOINT.md
#define KEYS_AT 42
#define HEADER_SIZE 44

static void try_bytes(const uint8_t *bytes, size_t size)
{
    struct cn_register_reply reply, back;
    uint8_t owner[CN_DIGEST_SIZE] = {0};
    uint8_t again[CN_REGISTRATION_MAX];
    uint32_t keys = 0;
    size_t length;

    if (size >= HEADER_SIZE) {
        memcpy(owner, bytes + OWNER_AT, CN_DIGEST_SIZE);
        keys = cn_get_u16(bytes + KEYS_AT);
    }
    if (cn_registration_decode(bytes, size, owner, keys, &reply))
        return;
    if (cn_registration_encode(owner, &reply, keys, again, &length) ||
        cn_registration_decode(again, length, owner, keys, &back) ||
        memcmp(back.manifest.pair_keys, reply.manifest.pair_keys, (size_t)keys * CN_KEY_SIZE) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return try_sealed(data, size, try_bytes);
}
