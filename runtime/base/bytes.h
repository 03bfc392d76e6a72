// bytes.h - little-endian numbers, hexadecimal and a growing buffer.
//
// All formats of Cairn are little-endian. cn_put_* and cn_get_* need no alignment.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "weights are stored as they lie in memory");

#define CN_DIGEST_SIZE 32 // SHA-256
#define CN_KEY_SIZE 32    // of every secret: boards, sessions, pairs of members

void cn_put_u16(uint8_t *to, uint16_t value);
void cn_put_u32(uint8_t *to, uint32_t value);
void cn_put_u64(uint8_t *to, uint64_t value);
void cn_put_f64(uint8_t *to, double value);
uint16_t cn_get_u16(const uint8_t *from);
uint32_t cn_get_u32(const uint8_t *from);
uint64_t cn_get_u64(const uint8_t *from);
float cn_get_f32(const uint8_t *from);
double cn_get_f64(const uint8_t *from);

// Writes 2 * size digits and a terminating 0.
void cn_hex(char *text, const void *data, size_t size);

// Reads exactly 2 * size lower- or upper-case digits. CN_EFORMAT for anything else.
cn_err cn_hex_parse(const char *text, void *data, size_t size);

// Bytes that grow up to a limit that was set before anything was stored.
struct cn_buffer {
    uint8_t *data; // owned; NULL while empty
    size_t size;
    size_t capacity;
    size_t limit; // bytes; appending beyond it is CN_ERANGE
};

void cn_buffer_init(struct cn_buffer *buffer, size_t limit);
void cn_buffer_deinit(struct cn_buffer *buffer);
cn_err cn_buffer_append(struct cn_buffer *buffer, const void *data, size_t size);

// Sets the size; new bytes are zero.
cn_err cn_buffer_resize(struct cn_buffer *buffer, size_t size);

// *product = a * b. CN_ERANGE when it does not fit; use it for every size from outside.
cn_err cn_size_multiply(size_t a, size_t b, size_t *product);
