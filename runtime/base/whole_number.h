// whole_number.h - reads a whole number that a person typed.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Reads text that consists of decimal digits only. For any other text, and for a number below min
// or above max, returns false and leaves *number as it is.
bool cn_whole_number_read(const char *text, uint64_t min, uint64_t max, uint64_t *number);
