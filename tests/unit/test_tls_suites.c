// What the TLS library was built with: the set-up's configuration, not the library's default.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <mbedtls/ecdh.h>
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

// From OpenSSL: the last 16 bytes of 333 that were enciphered, and the tag. The nonces were chosen
// so that the first counter block ends with fffffffb, and with fffffff7: its 32-bit counter wraps
// among the first eight blocks, and between them and the next eight. The 96 bits before it stay.
static void gcm_wraps_the_counter_as_another_implementation(void **state)
{
    static const struct {
        unsigned bits;
        uint8_t nonce[16], last[16], tag[16];
    } known[] = {
        {128,
         {0x4f, 0xeb, 0x9b, 0x4f, 0x47, 0xba, 0x0c, 0x1f, 0x8b, 0x60, 0xaa, 0x4c, 0xbf, 0x04, 0x58,
          0xd8},
         {0xa6, 0xe1, 0x99, 0x76, 0x9e, 0xd7, 0x13, 0x46, 0xa1, 0xdf, 0x1b, 0x98, 0xc0, 0x42, 0xb4,
          0xbe},
         {0xe6, 0x70, 0xe8, 0x08, 0xb2, 0x6a, 0xda, 0xd1, 0x70, 0xf6, 0xd9, 0xa9, 0xb7, 0xaa, 0xa2,
          0x0e}},
        {128,
         {0xa5, 0x54, 0xc6, 0xc1, 0x6a, 0x48, 0x96, 0xe5, 0xbe, 0xa3, 0x03, 0xc4, 0x75, 0x69, 0x4d,
          0x02},
         {0xc0, 0xd1, 0xe9, 0x28, 0x2c, 0xb9, 0x42, 0x1b, 0x15, 0x22, 0x10, 0x20, 0xb4, 0x54, 0xbc,
          0x73},
         {0x9a, 0x77, 0xf1, 0x29, 0x1e, 0x56, 0x30, 0x7f, 0x0f, 0x28, 0x86, 0x34, 0x2c, 0x4b, 0xa3,
          0x62}},
        {256,
         {0x31, 0x10, 0x2b, 0x12, 0x22, 0x46, 0x52, 0x4b, 0x23, 0xf1, 0x89, 0xc9, 0xa2, 0xaa, 0x06,
          0xed},
         {0xd0, 0xf0, 0xad, 0xe7, 0x34, 0x15, 0xe7, 0x18, 0x8c, 0x67, 0x3a, 0x03, 0x0e, 0x47, 0xab,
          0x6a},
         {0xeb, 0x2b, 0xfc, 0xf4, 0x37, 0x53, 0x40, 0x7c, 0xf1, 0x14, 0xf7, 0xbb, 0x35, 0xa4, 0x4d,
          0x71}},
        {256,
         {0x5d, 0x73, 0xeb, 0x92, 0x1c, 0xe3, 0x8c, 0x38, 0x86, 0x1e, 0x19, 0x0d, 0x28, 0x73, 0x31,
          0x78},
         {0xbb, 0xc0, 0x9f, 0x2d, 0x8a, 0xf2, 0xb6, 0x5a, 0x57, 0xdf, 0x8f, 0x08, 0x61, 0x73, 0x00,
          0x70},
         {0xb3, 0xf0, 0x27, 0x84, 0xea, 0xb5, 0x2d, 0x02, 0xcc, 0x79, 0x8d, 0xa2, 0x59, 0xcf, 0x58,
          0xb0}},
    };
    uint8_t key[32], plain[333], data[333], tag[16];
    mbedtls_gcm_context gcm;

    (void)state;
    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof(plain); i++)
        plain[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        mbedtls_gcm_init(&gcm);
        assert_int_equal(mbedtls_gcm_setkey(&gcm, MBEDTLS_CIPHER_ID_AES, key, known[i].bits), 0);
        assert_int_equal(mbedtls_gcm_crypt_and_tag(&gcm, MBEDTLS_GCM_ENCRYPT, sizeof(data),
                                                   known[i].nonce, 16, (const uint8_t *)"ad", 2,
                                                   plain, data, sizeof(tag), tag),
                         0);
        assert_memory_equal(data + sizeof(data) - 16, known[i].last, 16);
        assert_memory_equal(tag, known[i].tag, 16);
        assert_int_equal(mbedtls_gcm_auth_decrypt(&gcm, sizeof(data), known[i].nonce, 16,
                                                  (const uint8_t *)"ad", 2, known[i].tag, 16, data,
                                                  data),
                         0);
        assert_memory_equal(data, plain, sizeof(plain));
        mbedtls_gcm_free(&gcm);
    }
}

static int count_up(void *context, unsigned char *bytes, size_t size)
{
    (void)context;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i + 1);
    return 0;
}

// The key pair of a private key below 65536, on the curve P-256.
static void small_pair(mbedtls_ecp_keypair *pair, unsigned number)
{
    uint8_t key[32] = {0};

    key[30] = (uint8_t)(number >> 8);
    key[31] = (uint8_t)number;
    mbedtls_ecp_keypair_init(pair);
    assert_int_equal(mbedtls_ecp_read_key(MBEDTLS_ECP_DP_SECP256R1, pair, key, sizeof(key)), 0);
    assert_int_equal(mbedtls_ecp_keypair_calc_public(pair, count_up, NULL), 0);
}

// CVE-2026-35336: the secret of the keys 379 and 1 begins with a zero byte, so that 31 bytes hold
// its value, but not what is written.
static void a_secret_larger_than_its_buffer_is_refused(void **state)
{
    mbedtls_ecp_keypair ours, theirs;
    mbedtls_ecdh_context ecdh;
    uint8_t secret[32] = {0};
    size_t size;

    (void)state;
    small_pair(&ours, 379);
    small_pair(&theirs, 1);
    mbedtls_ecdh_init(&ecdh);
    assert_int_equal(mbedtls_ecdh_get_params(&ecdh, &ours, MBEDTLS_ECDH_OURS), 0);
    assert_int_equal(mbedtls_ecdh_get_params(&ecdh, &theirs, MBEDTLS_ECDH_THEIRS), 0);
    assert_int_not_equal(mbedtls_ecdh_calc_secret(&ecdh, &size, secret, 31, count_up, NULL), 0);
    assert_int_equal(mbedtls_ecdh_calc_secret(&ecdh, &size, secret, 32, count_up, NULL), 0);
    assert_int_equal(size, 32);
    assert_int_equal(secret[0], 0);
    assert_int_equal(secret[1], 0x55);
    mbedtls_ecdh_free(&ecdh);
    mbedtls_ecp_keypair_free(&theirs);
    mbedtls_ecp_keypair_free(&ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_listed_suites_are_offered),
        cmocka_unit_test(key_exchanges_without_forward_secrecy_are_not_compiled_in),
        cmocka_unit_test(gcm_gives_the_same_in_blocks_and_at_once),
        cmocka_unit_test(gcm_agrees_with_another_implementation),
        cmocka_unit_test(gcm_wraps_the_counter_as_another_implementation),
        cmocka_unit_test(a_secret_larger_than_its_buffer_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
