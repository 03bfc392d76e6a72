// crypto.h - digests, checksums, key derivation and random bytes. One implementation per program,
// linked in.
//
// SHA-256: FIPS 180-4. HKDF: RFC 5869 with SHA-256. Threading: any; no shared state.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"

// Opaque; large enough for the implementation's state, which the port checks at compile time.
struct cn_sha256 {
    _Alignas(8) uint8_t state[256];
};

void cn_sha256_init(struct cn_sha256 *sha);
void cn_sha256_add(struct cn_sha256 *sha, const void *data, size_t size);

// Writes the digest of all that was added and ends the computation; init starts a new one.
void cn_sha256_finish(struct cn_sha256 *sha, uint8_t digest[CN_DIGEST_SIZE]);

// Writes the SHA-256 of data to digest in one call.
void cn_crypto_digest(const void *data, size_t size, uint8_t digest[CN_DIGEST_SIZE]);

// Computes derived = HKDF(key, no salt, info = label). Returns CN_ENOTSUP or CN_ENOMEM when the
// library fails.
cn_err cn_crypto_derive(const uint8_t key[CN_KEY_SIZE], const char *label,
                        uint8_t derived[CN_KEY_SIZE]);

// Fills data from the kernel's random generator. Blocks until the generator is seeded.
cn_err cn_crypto_random(void *data, size_t size);

// Returns the CRC-32C (Castagnoli, RFC 3720 B.4) of data. crc is the result for the bytes before
// data, 0 at the start. A CRC detects damage, not tampering.
uint32_t cn_crc32c(uint32_t crc, const void *data, size_t size);

// Compares size bytes in a time that does not depend on their values. Returns 0 when all are equal.
int cn_crypto_compare(const void *a, const void *b, size_t size);

// Overwrites a secret with zeros; the compiler cannot remove the call.
void cn_crypto_wipe(void *data, size_t size);
