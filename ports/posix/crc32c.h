// crc32c.h - CRC-32C with the processor's instruction, else with tables. Private to the port.
#pragma once

#include <stddef.h>
#include <stdint.h>

// As cn_crc32c of runtime/port/crypto.h.
uint32_t cn_crc32c_add(uint32_t crc, const void *data, size_t size);
