// update_dense.c - blocks with every coordinate: raw float32, and int8 with scales.
#include "runtime/update/update_block.h"

#define GROUP_COUNT 256 // coordinates that share a scale
#define STEPS 127       // of a scale, in each direction

size_t cn_update_dense_encode_raw(const float *values, size_t count, float *decoded, uint8_t *block)
{
    memcpy(block, values, 4 * count);
    memmove(decoded, values, 4 * count);
    return 4 * count;
}

cn_err cn_update_dense_decode_raw(const uint8_t *bytes, size_t size, size_t count, float *values,
                                  size_t *used)
{
    uint32_t largest = 0;

    if (size < 4 * count)
        return CN_EFORMAT;
    memcpy(values, bytes, 4 * count);
    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = cn_update_bits(values[i]) & 0x7fffffffu;

        largest = magnitude > largest ? magnitude : largest;
    }
    if (largest >= 0x7f800000u)
        return CN_EDIVERGED;
    if (largest > cn_update_bits(CN_UPDATE_VALUE_MAX))
        return CN_ERANGE;
    *used = 4 * count;
    return CN_OK;
}

// The smallest code whose value times 127 reaches the largest magnitude; 0 when all count as zero.
static uint32_t group_scale(const float *values, size_t count)
{
    uint32_t largest = 0;
    uint32_t code;

    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = cn_update_bits(values[i]) & 0x7fffffffu;

        largest = magnitude > largest ? magnitude : largest;
    }
    code = (cn_update_bits(cn_update_float(largest) / STEPS) + 0x7fff) >> CN_UPDATE_CODE_SHIFT;
    return code < CN_UPDATE_CODE_MIN ? 0 : code;
}

// steps * scale is exact: 7 by 9 bits. Only the last step of the largest scale can pass the limit.
static float q8_value(int steps, float scale)
{
    float value = (float)steps * scale;

    if (value > CN_UPDATE_VALUE_MAX)
        return CN_UPDATE_VALUE_MAX;
    return value < -CN_UPDATE_VALUE_MAX ? -CN_UPDATE_VALUE_MAX : value;
}

static size_t encode_group(const float *values, size_t count, float *decoded, uint8_t *bytes)
{
    // Adding 1.5 * 2^23 leaves no bits below the unit: the sum is rounded to the nearest even.
    const float rounder = 12582912.0f;
    uint32_t code = group_scale(values, count);
    float scale = cn_update_float(code << CN_UPDATE_CODE_SHIFT);

    cn_put_u16(bytes, (uint16_t)code);
    if (code == 0) {
        memset(decoded, 0, 4 * count);
        return 2;
    }
    for (size_t i = 0; i < count; i++) {
        float shifted = values[i] / scale + rounder;
        int steps = (int)(shifted - rounder);

        bytes[2 + i] = (uint8_t)(int8_t)steps;
        decoded[i] = q8_value(steps, scale);
    }
    return 2 + count;
}

size_t cn_update_dense_encode_q8(const float *values, size_t count, float *decoded, uint8_t *block)
{
    size_t size = 0;

    for (size_t done = 0; done < count; done += GROUP_COUNT) {
        size_t part = count - done < GROUP_COUNT ? count - done : GROUP_COUNT;

        size += encode_group(values + done, part, decoded + done, block + size);
    }
    return size;
}

static cn_err decode_group(const uint8_t *bytes, size_t size, size_t count, float *values,
                           size_t *used)
{
    // Of the largest magnitude, 16.
    const uint32_t code_max =
        (cn_update_bits(CN_UPDATE_VALUE_MAX / STEPS) + 0x7fff) >> CN_UPDATE_CODE_SHIFT;
    uint32_t code;
    float scale;
    int largest = 0;

    if (size < 2)
        return CN_EFORMAT;
    code = cn_get_u16(bytes);
    if (code == 0) {
        memset(values, 0, 4 * count);
        *used = 2;
        return CN_OK;
    }
    if (code < CN_UPDATE_CODE_MIN || code > code_max)
        return CN_ERANGE;
    if (size - 2 < count)
        return CN_EFORMAT;
    scale = cn_update_float(code << CN_UPDATE_CODE_SHIFT);
    for (size_t i = 0; i < count; i++) {
        int steps = bytes[2 + i] < 128 ? bytes[2 + i] : bytes[2 + i] - 256; // int8
        int magnitude = steps < 0 ? -steps : steps;

        largest = magnitude > largest ? magnitude : largest;
        values[i] = q8_value(steps, scale);
    }
    // A smaller scale would have done, or a step is -128.
    if (largest != STEPS)
        return CN_EFORMAT;
    *used = 2 + count;
    return CN_OK;
}

cn_err cn_update_dense_decode_q8(const uint8_t *bytes, size_t size, size_t count, float *values,
                                 size_t *used)
{
    size_t position = 0;

    for (size_t done = 0; done < count; done += GROUP_COUNT) {
        size_t part = count - done < GROUP_COUNT ? count - done : GROUP_COUNT;
        size_t group_used;
        cn_err err =
            decode_group(bytes + position, size - position, part, values + done, &group_used);

        if (err)
            return err;
        position += group_used;
    }
    *used = position;
    return CN_OK;
}
