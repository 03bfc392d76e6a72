#include "runtime/base/bytes.h"

#include <stdlib.h>
#include <string.h>

void cn_put_u16(uint8_t *to, uint16_t value)
{
    memcpy(to, &value, sizeof(value));
}

void cn_put_u32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, sizeof(value));
}

void cn_put_u64(uint8_t *to, uint64_t value)
{
    memcpy(to, &value, sizeof(value));
}

void cn_put_f64(uint8_t *to, double value)
{
    memcpy(to, &value, sizeof(value));
}

uint16_t cn_get_u16(const uint8_t *from)
{
    uint16_t value;

    memcpy(&value, from, sizeof(value));
    return value;
}

uint32_t cn_get_u32(const uint8_t *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return value;
}

uint64_t cn_get_u64(const uint8_t *from)
{
    uint64_t value;

    memcpy(&value, from, sizeof(value));
    return value;
}

float cn_get_f32(const uint8_t *from)
{
    float value;

    memcpy(&value, from, sizeof(value));
    return value;
}

double cn_get_f64(const uint8_t *from)
{
    double value;

    memcpy(&value, from, sizeof(value));
    return value;
}

void cn_hex(char *text, const void *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * size] = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

cn_err cn_hex_parse(const char *text, void *data, size_t size)
{
    uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++) {
        int high = hex_digit(text[2 * i]);
        int low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);

        if (low < 0)
            return CN_EFORMAT;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return text[2 * size] == '\0' ? CN_OK : CN_EFORMAT;
}

void cn_buffer_init(struct cn_buffer *buffer, size_t limit)
{
    *buffer = (struct cn_buffer){.limit = limit};
}

void cn_buffer_deinit(struct cn_buffer *buffer)
{
    if (!buffer)
        return;
    free(buffer->data);
    *buffer = (struct cn_buffer){0};
}

static cn_err reserve(struct cn_buffer *buffer, size_t size)
{
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    uint8_t *data;

    if (size > buffer->limit)
        return CN_ERANGE;
    if (size <= buffer->capacity)
        return CN_OK;
    while (capacity < size)
        capacity = capacity > buffer->limit / 2 ? buffer->limit : capacity * 2;
    data = realloc(buffer->data, capacity);
    if (!data)
        return CN_ENOMEM;
    buffer->data = data;
    buffer->capacity = capacity;
    return CN_OK;
}

cn_err cn_buffer_append(struct cn_buffer *buffer, const void *data, size_t size)
{
    cn_err err;

    if (size > buffer->limit - buffer->size)
        return CN_ERANGE;
    err = reserve(buffer, buffer->size + size);
    if (err)
        return err;
    if (size)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return CN_OK;
}

cn_err cn_buffer_resize(struct cn_buffer *buffer, size_t size)
{
    cn_err err = reserve(buffer, size);

    if (err)
        return err;
    if (size > buffer->size)
        memset(buffer->data + buffer->size, 0, size - buffer->size);
    buffer->size = size;
    return CN_OK;
}

cn_err cn_size_multiply(size_t a, size_t b, size_t *product)
{
    return __builtin_mul_overflow(a, b, product) ? CN_ERANGE : CN_OK;
}
