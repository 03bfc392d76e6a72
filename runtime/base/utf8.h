// utf8.h - reads characters of a text that may come from anywhere.
//
// Threading: no shared state.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Reads the first character of text, which ends with a 0. Returns its size of 1 to 4 bytes and sets
// *point to its code point. Returns 0 when the bytes are not valid UTF-8 (RFC 3629); *point has no
// meaning then.
size_t cn_utf8_read(const char *text, uint32_t *point);
