// update_dense.c - blocks with every coordinate: raw float32, bfloat16, int8 and int4 with scales,
// and signs.
//
// Loops have no branch that depends on a value, so that the compiler can vectorize them.
#include "runtime/update/update_block.h"

#define GROUP_COUNT 256 // coordinates that share a scale
#define Q8_STEPS 127    // largest step in either direction
#define Q4_STEPS 7

static uint32_t largest_bits(const float *values, size_t count)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = cn_update_bits(values[i]) & 0x7fffffffu;

        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static cn_err check_values(const float *values, size_t count)
{
    uint32_t largest = largest_bits(values, count);

    if (largest >= 0x7f800000u)
        return CN_EDIVERGED;
    return largest > cn_update_bits(CN_UPDATE_VALUE_MAX) ? CN_ERANGE : CN_OK;
}

size_t cn_update_raw_encode(const float *values, size_t count, float *decoded, uint8_t *block)
{
    memcpy(block, values, 4 * count);
    memmove(decoded, values, 4 * count);
    return 4 * count;
}

cn_err cn_update_raw_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                            size_t *used)
{
    if (size < 4 * count)
        return CN_EFORMAT;
    memcpy(values, bytes, 4 * count);
    *used = 4 * count;
    return check_values(values, count);
}

// Returns the 16 high bits of a float32, rounded to the nearest, ties to even. The limit 16 is a
// bfloat16, so no value is rounded beyond it.
size_t cn_update_bf16_encode(const float *values, size_t count, float *decoded, uint8_t *block)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = cn_update_bits(values[i]);
        uint16_t high = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);

        memcpy(block + 2 * i, &high, sizeof(high));
        decoded[i] = cn_update_float((uint32_t)high << 16);
    }
    return 2 * count;
}

cn_err cn_update_bf16_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                             size_t *used)
{
    if (size < 2 * count)
        return CN_EFORMAT;
    for (size_t i = 0; i < count; i++) {
        uint16_t high;

        memcpy(&high, bytes + 2 * i, sizeof(high));
        values[i] = cn_update_float((uint32_t)high << 16);
    }
    *used = 2 * count;
    return check_values(values, count);
}

// Returns the smallest code for which value(code) * steps reaches the largest magnitude; 0 when all
// values count as zero.
static uint32_t scale_code(float largest, int steps)
{
    uint32_t code = (cn_update_bits(largest / (float)steps) + 0x7fff) >> CN_UPDATE_CODE_SHIFT;

    return code < CN_UPDATE_CODE_MIN ? 0 : code;
}

// Returns steps * scale, limited to 16. The product is exact: at most 7 by 9 bits. Only the last
// step of the largest scale can exceed the limit.
static float step_value(int steps, float scale)
{
    float value = (float)steps * scale;

    value = value > CN_UPDATE_VALUE_MAX ? CN_UPDATE_VALUE_MAX : value;
    return value < -CN_UPDATE_VALUE_MAX ? -CN_UPDATE_VALUE_MAX : value;
}

// Quantises a group to whole steps of its scale, at most limit in either direction. Returns the
// code of the scale; 0 means that all values are zero.
static uint32_t put_steps(const float *values, size_t count, int limit, int8_t *steps,
                          float *decoded)
{
    // A float32 near 1.5 * 2^23 has no fraction bits: the sum is rounded to an integer, ties to
    // even.
    const float rounder = 12582912.0f;
    uint32_t code = scale_code(cn_update_float(largest_bits(values, count)), limit);
    float scale = cn_update_float(code << CN_UPDATE_CODE_SHIFT);

    if (code == 0) {
        memset(decoded, 0, 4 * count);
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        float shifted = values[i] / scale + rounder;
        int step = (int)(shifted - rounder);

        steps[i] = (int8_t)step;
        decoded[i] = step_value(step, scale);
    }
    return code;
}

// Turns steps into values. Returns CN_EFORMAT when no step has the magnitude limit: an encoder
// would have used a smaller scale.
static cn_err get_steps(const int8_t *steps, size_t count, int limit, uint32_t code, float *values)
{
    float scale = cn_update_float(code << CN_UPDATE_CODE_SHIFT);
    int largest = 0;

    for (size_t i = 0; i < count; i++) {
        int magnitude = steps[i] < 0 ? -steps[i] : steps[i];

        largest = magnitude > largest ? magnitude : largest;
        values[i] = step_value(steps[i], scale);
    }
    return largest == limit ? CN_OK : CN_EFORMAT;
}

// Reads a scale. Returns CN_ERANGE when it is larger than the scale for the magnitude 16.
static cn_err get_scale(const uint8_t *bytes, size_t size, int steps, uint32_t *code)
{
    if (size < 2)
        return CN_EFORMAT;
    *code = cn_get_u16(bytes);
    if (*code == 0)
        return CN_OK;
    return *code < CN_UPDATE_CODE_MIN || *code > scale_code(CN_UPDATE_VALUE_MAX, steps) ? CN_ERANGE
                                                                                        : CN_OK;
}

static size_t put_q8_group(const float *values, size_t count, float *decoded, uint8_t *bytes)
{
    int8_t steps[GROUP_COUNT];
    uint32_t code = put_steps(values, count, Q8_STEPS, steps, decoded);

    cn_put_u16(bytes, (uint16_t)code);
    if (code == 0)
        return 2;
    memcpy(bytes + 2, steps, count);
    return 2 + count;
}

static cn_err get_q8_group(const uint8_t *bytes, size_t size, size_t count, float *values,
                           size_t *used)
{
    int8_t steps[GROUP_COUNT];
    uint32_t code;
    cn_err err = get_scale(bytes, size, Q8_STEPS, &code);

    if (err)
        return err;
    *used = 2;
    memset(values, 0, 4 * count);
    if (code == 0)
        return CN_OK;
    if (size - 2 < count)
        return CN_EFORMAT;
    memcpy(steps, bytes + 2, count);
    *used = 2 + count;
    return get_steps(steps, count, Q8_STEPS, code, values);
}

// Two steps in each byte, the first in the low half.
static size_t put_q4_group(const float *values, size_t count, float *decoded, uint8_t *bytes)
{
    int8_t steps[GROUP_COUNT + 1];
    uint32_t code = put_steps(values, count, Q4_STEPS, steps, decoded);
    size_t size = (count + 1) / 2;

    cn_put_u16(bytes, (uint16_t)code);
    if (code == 0)
        return 2;
    steps[count] = 0;
    for (size_t i = 0; i < size; i++)
        bytes[2 + i] = (uint8_t)((steps[2 * i] & 15) | (steps[2 * i + 1] & 15) << 4);
    return 2 + size;
}

static cn_err get_q4_group(const uint8_t *bytes, size_t size, size_t count, float *values,
                           size_t *used)
{
    int8_t steps[GROUP_COUNT + 1] = {0};
    size_t half = (count + 1) / 2;
    uint32_t code;
    cn_err err = get_scale(bytes, size, Q4_STEPS, &code);

    if (err)
        return err;
    *used = 2;
    memset(values, 0, 4 * count);
    if (code == 0)
        return CN_OK;
    if (size - 2 < half)
        return CN_EFORMAT;
    for (size_t i = 0; i < half; i++) {
        // Four bits in two's complement.
        steps[2 * i] = (int8_t)(((bytes[2 + i] & 15) ^ 8) - 8);
        steps[2 * i + 1] = (int8_t)((bytes[2 + i] >> 4 ^ 8) - 8);
    }
    *used = 2 + half;
    if (count % 2 && steps[count])
        return CN_EFORMAT;
    return get_steps(steps, count, Q4_STEPS, code, values);
}

// Writes the mean magnitude of the group and one bit for each sign, the lowest bit of a byte first.
static size_t put_sign_group(const float *values, size_t count, float *decoded, uint8_t *bytes)
{
    double sum = 0;
    uint32_t code;

    for (size_t i = 0; i < count; i++)
        sum += (double)cn_update_float(cn_update_bits(values[i]) & 0x7fffffffu);
    code = cn_update_nearest_code((float)(sum / (double)count));
    cn_put_u16(bytes, (uint16_t)code);
    if (code == 0) {
        memset(decoded, 0, 4 * count);
        return 2;
    }
    memset(bytes + 2, 0, (count + 7) / 8);
    for (size_t i = 0; i < count; i++) {
        uint32_t sign = cn_update_bits(values[i]) >> 31;

        bytes[2 + i / 8] = (uint8_t)(bytes[2 + i / 8] | sign << i % 8);
        decoded[i] = cn_update_float(sign << 31 | code << CN_UPDATE_CODE_SHIFT);
    }
    return 2 + (count + 7) / 8;
}

static cn_err get_sign_group(const uint8_t *bytes, size_t size, size_t count, float *values,
                             size_t *used)
{
    size_t whole = (count + 7) / 8;
    uint32_t code;
    cn_err err = get_scale(bytes, size, 1, &code);

    if (err)
        return err;
    *used = 2;
    memset(values, 0, 4 * count);
    if (code == 0)
        return CN_OK;
    if (size - 2 < whole)
        return CN_EFORMAT;
    for (size_t i = 0; i < count; i++) {
        uint32_t sign = bytes[2 + i / 8] >> i % 8 & 1;

        values[i] = cn_update_float(sign << 31 | code << CN_UPDATE_CODE_SHIFT);
    }
    *used = 2 + whole;
    return count % 8 && bytes[1 + whole] >> count % 8 ? CN_EFORMAT : CN_OK;
}

typedef size_t put_group(const float *values, size_t count, float *decoded, uint8_t *bytes);
typedef cn_err get_group(const uint8_t *bytes, size_t size, size_t count, float *values,
                         size_t *used);

static size_t put_groups(put_group *put, const float *values, size_t count, float *decoded,
                         uint8_t *block)
{
    size_t size = 0;

    for (size_t done = 0; done < count; done += GROUP_COUNT) {
        size_t part = count - done < GROUP_COUNT ? count - done : GROUP_COUNT;

        size += put(values + done, part, decoded + done, block + size);
    }
    return size;
}

static cn_err get_groups(get_group *get, const uint8_t *bytes, size_t size, size_t count,
                         float *values, size_t *used)
{
    size_t position = 0;

    for (size_t done = 0; done < count; done += GROUP_COUNT) {
        size_t part = count - done < GROUP_COUNT ? count - done : GROUP_COUNT;
        size_t group_used;
        cn_err err = get(bytes + position, size - position, part, values + done, &group_used);

        if (err)
            return err;
        position += group_used;
    }
    *used = position;
    return CN_OK;
}

size_t cn_update_q8_encode(const float *values, size_t count, float *decoded, uint8_t *block)
{
    return put_groups(put_q8_group, values, count, decoded, block);
}

cn_err cn_update_q8_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                           size_t *used)
{
    return get_groups(get_q8_group, bytes, size, count, values, used);
}

size_t cn_update_q4_encode(const float *values, size_t count, float *decoded, uint8_t *block)
{
    return put_groups(put_q4_group, values, count, decoded, block);
}

cn_err cn_update_q4_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                           size_t *used)
{
    return get_groups(get_q4_group, bytes, size, count, values, used);
}

size_t cn_update_sign_encode(const float *values, size_t count, float *decoded, uint8_t *block)
{
    return put_groups(put_sign_group, values, count, decoded, block);
}

cn_err cn_update_sign_decode(const uint8_t *bytes, size_t size, size_t count, float *values,
                             size_t *used)
{
    return get_groups(get_sign_group, bytes, size, count, values, used);
}
