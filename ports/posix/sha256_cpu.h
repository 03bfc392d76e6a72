// sha256_cpu.h - SHA-256 (FIPS 180-4) with the processor's own instructions. Private to the port.
//
// They are six to ten times as fast as the library's code, and every weight that travels or is
// stored goes through a digest. Threading: any.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Hashes whole blocks of 64 bytes into state. Only with CN_CPU_SHA.
void cn_sha256_cpu_blocks(uint32_t state[8], const uint8_t *data, size_t count);
