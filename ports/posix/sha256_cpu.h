// sha256_cpu.h - SHA-256 (FIPS 180-4) with the processor's own instructions. Private to the port.
//
// They are six to ten times as fast as mbedTLS's code. Every weight that is sent or stored goes
// through a digest, so that matters. Threading: any.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Hashes count blocks of 64 bytes into state. Call only if cn_cpu_features has CN_CPU_SHA: on other
// processors the instructions trap, on other architectures nothing happens.
void cn_sha256_cpu_blocks(uint32_t state[8], const uint8_t *data, size_t count);
