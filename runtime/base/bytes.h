// bytes.h - little-endian numbers, hexadecimal and a growing buffer.
//
// All formats of Cairn are little-endian. cn_put_* and cn_get_* need no alignment.
// Threading: no shared state.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "weights are stored as they lie in memory");

#define CN_DIGEST_SIZE 32 // bytes of a SHA-256 digest
#define CN_KEY_SIZE 32    // bytes of a secret key: of a board, a session or a pair of members

void cn_put_u16(uint8_t *to, uint16_t value);
void cn_put_u32(uint8_t *to, uint32_t value);
void cn_put_u64(uint8_t *to, uint64_t value);
void cn_put_f64(uint8_t *to, double value);
uint16_t cn_get_u16(const uint8_t *from);
uint32_t cn_get_u32(const uint8_t *from);
uint64_t cn_get_u64(const uint8_t *from);
float cn_get_f32(const uint8_t *from);
double cn_get_f64(const uint8_t *from);

// Writes size bytes of data as 2 * size lower-case hexadecimal digits and a terminating 0.
void cn_hex(char *text, const void *data, size_t size);

// Reads size bytes from a text of exactly 2 * size hexadecimal digits, lower or upper case. Returns
// CN_EFORMAT for any other text; data may then be partly written.
cn_err cn_hex_parse(const char *text, void *data, size_t size);

// A byte buffer that grows up to a fixed limit.
struct cn_buffer {
    uint8_t *data; // owned; NULL while empty
    size_t size;
    size_t capacity;
    size_t limit; // largest size in bytes; growing beyond it returns CN_ERANGE
};

void cn_buffer_init(struct cn_buffer *buffer, size_t limit);
void cn_buffer_deinit(struct cn_buffer *buffer);

// Appends size bytes of data. Returns CN_ERANGE or CN_ENOMEM; the buffer is unchanged then.
cn_err cn_buffer_append(struct cn_buffer *buffer, const void *data, size_t size);

// Sets the size; new bytes are zero. Returns CN_ERANGE or CN_ENOMEM; the buffer is unchanged then.
cn_err cn_buffer_resize(struct cn_buffer *buffer, size_t size);

// Sets *product = a * b. Returns CN_ERANGE when the product does not fit. Use it for every size
// that comes from outside.
cn_err cn_size_multiply(size_t a, size_t b, size_t *product);
