// cairn_mbedtls_config.h - what Cairn changes in mbedTLS's default configuration.
//
// The set-up appends an include of this file to mbedtls/mbedtls_config.h, so the library, libcoap
// and Cairn all see one configuration; structures differ in size between configurations.
#ifndef CAIRN_MBEDTLS_CONFIG_H
#define CAIRN_MBEDTLS_CONFIG_H

// Cipher suites are listed, not inherited: forward-secret PSK with an AEAD. The first is for DTLS
// and TLS 1.2, the other two for TLS 1.3.
#define MBEDTLS_SSL_CIPHERSUITES                                                                   \
    MBEDTLS_TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256, MBEDTLS_TLS1_3_AES_128_GCM_SHA256,        \
        MBEDTLS_TLS1_3_CHACHA20_POLY1305_SHA256

// TLS 1.2: ECDHE-PSK stays, every other key exchange goes.
#undef MBEDTLS_KEY_EXCHANGE_PSK_ENABLED
#undef MBEDTLS_KEY_EXCHANGE_DHE_PSK_ENABLED
#undef MBEDTLS_KEY_EXCHANGE_RSA_PSK_ENABLED
#undef MBEDTLS_KEY_EXCHANGE_RSA_ENABLED
#undef MBEDTLS_KEY_EXCHANGE_DHE_RSA_ENABLED
#undef MBEDTLS_KEY_EXCHANGE_ECDHE_RSA_ENABLED
#undef MBEDTLS_KEY_EXCHANGE_ECDHE_ECDSA_ENABLED
#undef MBEDTLS_KEY_EXCHANGE_ECDH_ECDSA_ENABLED
#undef MBEDTLS_KEY_EXCHANGE_ECDH_RSA_ENABLED
#undef MBEDTLS_SSL_RENEGOTIATION
#undef MBEDTLS_SSL_ENCRYPT_THEN_MAC // for CBC suites only

// TLS 1.3: PSK with a fresh ECDHE stays (psk_dhe_ke). No tickets, so no early data either.
#undef MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_PSK_ENABLED
#undef MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_EPHEMERAL_ENABLED
#undef MBEDTLS_SSL_TLS1_3_COMPATIBILITY_MODE // for middleboxes that know only TLS 1.2
#undef MBEDTLS_SSL_EARLY_DATA
#undef MBEDTLS_SSL_SESSION_TICKETS
#undef MBEDTLS_SSL_TICKET_C
#undef MBEDTLS_SSL_CACHE_C
#undef MBEDTLS_SSL_CONTEXT_SERIALIZATION

// A board behind a NAT keeps its DTLS session when its address changes (RFC 9146).
#ifndef MBEDTLS_SSL_DTLS_CONNECTION_ID
#error "mbedTLS without DTLS connection IDs"
#endif

// A ClientHello that was recorded must not end the session at its address: libcoap has a patch for
// those who come back from the same one.
#undef MBEDTLS_SSL_DTLS_CLIENT_PORT_REUSE

// Buffers shrink after the handshake to the record size that was agreed on: 2 KiB with DTLS, for
// which boards ask. Full records stay possible where they pay, between members of a group.
#define MBEDTLS_SSL_VARIABLE_BUFFER_LENGTH

// TLS 1.3 runs on PSA, which has process-wide state, and a port may run threads of its own.
#define MBEDTLS_THREADING_C
#define MBEDTLS_THREADING_PTHREAD
#undef MBEDTLS_PSA_CRYPTO_STORAGE_C // no key files in the working directory
#undef MBEDTLS_PSA_ITS_FILE_C

// Algorithms that no suite above can reach.
#undef MBEDTLS_CIPHER_MODE_CBC
#undef MBEDTLS_CIPHER_MODE_CFB
#undef MBEDTLS_CIPHER_MODE_OFB
#undef MBEDTLS_CIPHER_MODE_XTS
#undef MBEDTLS_ARIA_C
#undef MBEDTLS_CAMELLIA_C
#undef MBEDTLS_DES_C
#undef MBEDTLS_NIST_KW_C
#undef MBEDTLS_MD5_C
#undef MBEDTLS_RIPEMD160_C
#undef MBEDTLS_SHA1_C
#undef MBEDTLS_SHA3_C
#undef MBEDTLS_LMS_C
#undef MBEDTLS_DHM_C
#undef MBEDTLS_ECJPAKE_C
#undef MBEDTLS_RSA_C
#undef MBEDTLS_GENPRIME
#undef MBEDTLS_PK_RSA_ALT_SUPPORT
#undef MBEDTLS_PKCS1_V15
#undef MBEDTLS_PKCS1_V21
#undef MBEDTLS_X509_RSASSA_PSS_SUPPORT
#undef MBEDTLS_PKCS5_C
#undef MBEDTLS_PKCS7_C
#undef MBEDTLS_PKCS12_C

// Curves: X25519 and the NIST curves of 256 and 384 bits.
#undef MBEDTLS_ECP_DP_SECP192R1_ENABLED
#undef MBEDTLS_ECP_DP_SECP224R1_ENABLED
#undef MBEDTLS_ECP_DP_SECP521R1_ENABLED
#undef MBEDTLS_ECP_DP_SECP192K1_ENABLED
#undef MBEDTLS_ECP_DP_SECP224K1_ENABLED
#undef MBEDTLS_ECP_DP_SECP256K1_ENABLED
#undef MBEDTLS_ECP_DP_BP256R1_ENABLED
#undef MBEDTLS_ECP_DP_BP384R1_ENABLED
#undef MBEDTLS_ECP_DP_BP512R1_ENABLED
#undef MBEDTLS_ECP_DP_CURVE448_ENABLED

// libcoap calls the X.509 parser even where only PSK is set up; nothing here writes certificates.
#undef MBEDTLS_X509_CREATE_C
#undef MBEDTLS_X509_CRT_WRITE_C
#undef MBEDTLS_X509_CSR_WRITE_C
#undef MBEDTLS_X509_CSR_PARSE_C
#undef MBEDTLS_SELF_TEST

#endif
