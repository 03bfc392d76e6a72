#include "runtime/port/crypto.h"

#include <assert.h>
#include <errno.h>
#include <mbedtls/constant_time.h>
#include <mbedtls/hkdf.h>
#include <mbedtls/md.h>
#include <mbedtls/platform_util.h>
#include <mbedtls/sha256.h>
#include <string.h>
#include <sys/random.h>

#include "ports/posix/cpu_features.h"
#include "ports/posix/crc32c.h"
#include "ports/posix/sha256_cpu.h"

#define BLOCK 64

// The contents of struct cn_sha256. `fast` selects the processor's instructions (own) over mbedTLS
// (library).
struct state {
    bool fast;
    union {
        mbedtls_sha256_context library;
        struct {
            uint32_t words[8];
            uint64_t size;       // bytes hashed and in rest
            uint8_t rest[BLOCK]; // input that does not fill a block yet
        } own;
    };
};

_Static_assert(sizeof(struct state) <= sizeof(struct cn_sha256), "it must fit the opaque one");

static struct state *state_of(struct cn_sha256 *sha)
{
    return (struct state *)(void *)sha->state;
}

void cn_sha256_init(struct cn_sha256 *sha)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    struct state *state = state_of(sha);
    int failed;

    state->fast = cn_cpu_features() & CN_CPU_SHA;
    if (state->fast) {
        memcpy(state->own.words, first, sizeof(first));
        state->own.size = 0;
        return;
    }
    // The software SHA-256 cannot fail: its calls return an error only for hardware accelerators.
    mbedtls_sha256_init(&state->library);
    failed = mbedtls_sha256_starts(&state->library, 0);
    assert(!failed);
    (void)failed;
}

static void add_fast(struct state *state, const uint8_t *data, size_t size)
{
    size_t filled = state->own.size % BLOCK;
    size_t part = BLOCK - filled < size ? BLOCK - filled : size;

    if (size == 0)
        return;
    state->own.size += size;
    if (filled) {
        memcpy(state->own.rest + filled, data, part);
        data += part;
        size -= part;
        if (filled + part < BLOCK)
            return;
        cn_sha256_cpu_blocks(state->own.words, state->own.rest, 1);
    }
    cn_sha256_cpu_blocks(state->own.words, data, size / BLOCK);
    memcpy(state->own.rest, data + size / BLOCK * BLOCK, size % BLOCK);
}

void cn_sha256_add(struct cn_sha256 *sha, const void *data, size_t size)
{
    struct state *state = state_of(sha);
    int failed;

    if (state->fast) {
        add_fast(state, data, size);
        return;
    }
    failed = mbedtls_sha256_update(&state->library, data, size);
    assert(!failed);
    (void)failed;
}

// Pads with a one bit, zeros and the number of bits, so that a block ends (FIPS 180-4, 5.1.1), and
// writes the digest.
static void finish_fast(struct state *state, uint8_t digest[CN_DIGEST_SIZE])
{
    static const uint8_t padding[BLOCK] = {0x80};
    uint64_t bits = __builtin_bswap64(state->own.size * 8);
    size_t filled = state->own.size % BLOCK;

    add_fast(state, padding, (filled < BLOCK - 8 ? BLOCK - 8 : 2 * BLOCK - 8) - filled);
    add_fast(state, (const uint8_t *)&bits, sizeof(bits));
    for (size_t i = 0; i < 8; i++)
        cn_put_u32(digest + 4 * i, __builtin_bswap32(state->own.words[i]));
}

void cn_sha256_finish(struct cn_sha256 *sha, uint8_t digest[CN_DIGEST_SIZE])
{
    struct state *state = state_of(sha);
    int failed;

    if (state->fast) {
        finish_fast(state, digest);
        cn_crypto_wipe(state, sizeof(*state));
        return;
    }
    failed = mbedtls_sha256_finish(&state->library, digest);
    assert(!failed);
    (void)failed;
    mbedtls_sha256_free(&state->library);
}

void cn_crypto_digest(const void *data, size_t size, uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_sha256 sha;

    cn_sha256_init(&sha);
    cn_sha256_add(&sha, data, size);
    cn_sha256_finish(&sha, digest);
}

cn_err cn_crypto_derive(const uint8_t key[CN_KEY_SIZE], const char *label,
                        uint8_t derived[CN_KEY_SIZE])
{
    const mbedtls_md_info_t *sha256 = mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);

    if (!sha256)
        return CN_ENOTSUP;
    if (mbedtls_hkdf(sha256, NULL, 0, key, CN_KEY_SIZE, (const unsigned char *)label, strlen(label),
                     derived, CN_KEY_SIZE))
        return CN_ENOMEM;
    return CN_OK;
}

cn_err cn_crypto_random(void *data, size_t size)
{
    uint8_t *to = data;

    while (size) {
        ssize_t got = getrandom(to, size, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cn_err_from_errno(errno);
        to += got;
        size -= (size_t)got;
    }
    return CN_OK;
}

uint32_t cn_crc32c(uint32_t crc, const void *data, size_t size)
{
    return cn_crc32c_add(crc, data, size);
}

int cn_crypto_compare(const void *a, const void *b, size_t size)
{
    return mbedtls_ct_memcmp(a, b, size);
}

void cn_crypto_wipe(void *data, size_t size)
{
    mbedtls_platform_zeroize(data, size);
}
