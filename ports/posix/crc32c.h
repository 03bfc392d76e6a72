// crc32c.h - CRC-32C with the processor's instruction, or with tables where it has none.
//
// Private to the port. Threading: any.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Implements cn_crc32c of runtime/port/crypto.h.
uint32_t cn_crc32c_add(uint32_t crc, const void *data, size_t size);
