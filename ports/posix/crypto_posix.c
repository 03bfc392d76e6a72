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

_Static_assert(sizeof(mbedtls_sha256_context) <= sizeof(struct cn_sha256),
               "the library's state must fit the opaque one");

static mbedtls_sha256_context *context_of(struct cn_sha256 *sha)
{
    return (mbedtls_sha256_context *)(void *)sha->state;
}

// The software SHA-256 cannot fail: its calls return an error only for hardware accelerators.
void cn_sha256_init(struct cn_sha256 *sha)
{
    int failed;

    mbedtls_sha256_init(context_of(sha));
    failed = mbedtls_sha256_starts(context_of(sha), 0);
    assert(!failed);
    (void)failed;
}

void cn_sha256_add(struct cn_sha256 *sha, const void *data, size_t size)
{
    int failed = mbedtls_sha256_update(context_of(sha), data, size);

    assert(!failed);
    (void)failed;
}

void cn_sha256_finish(struct cn_sha256 *sha, uint8_t digest[CN_DIGEST_SIZE])
{
    int failed = mbedtls_sha256_finish(context_of(sha), digest);

    assert(!failed);
    (void)failed;
    mbedtls_sha256_free(context_of(sha));
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

int cn_crypto_compare(const void *a, const void *b, size_t size)
{
    return mbedtls_ct_memcmp(a, b, size);
}

void cn_crypto_wipe(void *data, size_t size)
{
    mbedtls_platform_zeroize(data, size);
}
