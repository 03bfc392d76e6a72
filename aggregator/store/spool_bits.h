// spool_bits.h - bitmaps of chunks: bit n is bit n % 8 of byte n / 8.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Returns the first index from `from` to end - 1 whose bit is set, or is not; end if there is none.
// Looks at 64 bits at a time.
uint32_t cn_spool_bits_find(const uint8_t *bits, bool set, uint32_t from, uint32_t end);
