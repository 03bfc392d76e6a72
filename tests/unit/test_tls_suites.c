// What the TLS library was built with: the set-up's configuration, not the library's default.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <mbedtls/ssl.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_listed_suites_are_offered),
        cmocka_unit_test(key_exchanges_without_forward_secrecy_are_not_compiled_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
