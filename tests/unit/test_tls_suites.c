// What the TLS library was built with: the set-up's configuration, not the library's default.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <mbedtls/gcm.h>
#include <mbedtls/ssl.h>
#include <string.h>

static void only_the_listed_suites_are_offered(void **state)
{
    const char *const listed[] = {
        "TLS-ECDHE-PSK-WITH-CHACHA20-POLY1305-SHA256",
        "TLS1-3-AES-128-GCM-SHA256",
        "TLS1-3-CHACHA20-POLY1305-SHA256",
    };
    const int *suite = mbedtls_ssl_list_ciphersuites();

    (void)state;
    for (size_t i = 0; i < sizeof(listed) / sizeof(listed[0]); i++, suite++)
        assert_string_equal(mbedtls_ssl_get_ciphersuite_name(*suite), listed[i]);
    assert_int_equal(*suite, 0);
}

static void key_exchanges_without_forward_secrecy_are_not_compiled_in(void **state)
{
    (void)state;
#if defined(MBEDTLS_KEY_EXCHANGE_PSK_ENABLED) ||                                                   \
    defined(MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_PSK_ENABLED) ||                                   \
    defined(MBEDTLS_SSL_EARLY_DATA) || defined(MBEDTLS_SSL_RENEGOTIATION)
    fail();
#endif
}

#define GCM_SIZE 1100

// In pieces of at most 16 bytes the library goes block by block; all at once it may do better.
static void crypt(int mode, unsigned bits, const uint8_t *in, uint8_t *out, size_t size,
                  size_t piece, uint8_t tag[16])
{
    static const uint8_t key[32] = "a key of 32 bytes for the cipher", more[21] = "said besides";
    uint8_t nonce[60];
    mbedtls_gcm_context gcm;
    size_t unused;

    for (size_t i = 0; i < sizeof(nonce); i++)
        nonce[i] = (uint8_t)(size * 31 + i);
    mbedtls_gcm_init(&gcm);
    assert_int_equal(mbedtls_gcm_setkey(&gcm, MBEDTLS_CIPHER_ID_AES, key, bits), 0);
    // A nonce that has not 12 bytes begins with any counter, also one that is about to wrap.
    assert_int_equal(mbedtls_gcm_starts(&gcm, mode, nonce, size % 2 ? 12 : 17), 0);
    assert_int_equal(mbedtls_gcm_update_ad(&gcm, more, size % sizeof(more)), 0);
    for (size_t done = 0; done < size; done += piece) {
        size_t part = size - done < piece ? size - done : piece;

        assert_int_equal(mbedtls_gcm_update(&gcm, in + done, part, out + done, part, &unused), 0);
    }
    assert_int_equal(mbedtls_gcm_finish(&gcm, NULL, 0, &unused, tag, 16), 0);
    mbedtls_gcm_free(&gcm);
}

static void gcm_gives_the_same_in_blocks_and_at_once(void **state)
{
    static uint8_t plain[GCM_SIZE], by_blocks[GCM_SIZE], at_once[GCM_SIZE];
    uint8_t tags[3][16];

    (void)state;
    for (size_t i = 0; i < GCM_SIZE; i++)
        plain[i] = (uint8_t)(i * 2654435761u >> 11);
    for (size_t size = 1; size <= GCM_SIZE; size++) {
        unsigned bits = 128 + 64 * (unsigned)(size % 3);

        crypt(MBEDTLS_GCM_ENCRYPT, bits, plain, by_blocks, size, 16, tags[0]);
        crypt(MBEDTLS_GCM_ENCRYPT, bits, plain, at_once, size, size, tags[1]);
        assert_memory_equal(at_once, by_blocks, size);
        assert_memory_equal(tags[1], tags[0], 16);
        crypt(MBEDTLS_GCM_DECRYPT, bits, at_once, at_once, size, 1 + size * 2 / 3, tags[2]);
        assert_memory_equal(at_once, plain, size);
        assert_memory_equal(tags[2], tags[0], 16);
    }
}

// The tag and the last block of 256 bytes are OpenSSL's.
static void gcm_agrees_with_another_implementation(void **state)
{
    static const uint8_t last[16] = {0x9f, 0xdd, 0x58, 0xac, 0x6e, 0x8a, 0x6a, 0x02,
                                     0x07, 0x54, 0xe3, 0x50, 0x43, 0x62, 0x30, 0x2d};
    static const uint8_t wanted[16] = {0x85, 0x04, 0x39, 0x5b, 0x8a, 0xbf, 0x73, 0x16,
                                       0x9f, 0xba, 0x23, 0xa0, 0xc0, 0x75, 0x2e, 0x66};
    uint8_t key[16], nonce[12], data[256], tag[16];
    mbedtls_gcm_context gcm;

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    memcpy(nonce, key, sizeof(nonce));
    mbedtls_gcm_init(&gcm);
    assert_int_equal(mbedtls_gcm_setkey(&gcm, MBEDTLS_CIPHER_ID_AES, key, 128), 0);
    assert_int_equal(mbedtls_gcm_crypt_and_tag(&gcm, MBEDTLS_GCM_ENCRYPT, sizeof(data), nonce,
                                               sizeof(nonce), (const uint8_t *)"ad", 2, data, data,
                                               sizeof(tag), tag),
                     0);
    assert_memory_equal(data + sizeof(data) - sizeof(last), last, sizeof(last));
    assert_memory_equal(tag, wanted, sizeof(wanted));
    mbedtls_gcm_free(&gcm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_listed_suites_are_offered),
        cmocka_unit_test(key_exchanges_without_forward_secrecy_are_not_compiled_in),
        cmocka_unit_test(gcm_gives_the_same_in_blocks_and_at_once),
        cmocka_unit_test(gcm_agrees_with_another_implementation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
