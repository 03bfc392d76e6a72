#include "runtime/group/reduce.h"

#include <string.h>

size_t cn_number_size(enum cn_number type)
{
    static const size_t sizes[] = {
        [CN_FLOAT32] = 4, [CN_BFLOAT16] = 2, [CN_FLOAT16] = 2, [CN_INT64] = 8};

    return sizes[type];
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float from_bfloat16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

static uint16_t to_bfloat16(float value)
{
    uint32_t bits = bits_of(value);

    if (value != value)
        return (uint16_t)(bits >> 16 | 0x40); // stays a quiet NaN and does not become an infinity
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
static float from_float16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;

    if (exponent == 0x1f)
        return float_of(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    // Subnormal: fraction * 2^-24, exact in float32.
    return float_of(sign | bits_of((float)fraction * 0x1p-24f));
}

static uint16_t to_float16(float value)
{
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float size = float_of(bits & 0x7fffffff);

    if (value != value)
        return sign | 0x7e00;
    if (size >= 65520) // rounds to 2^16
        return sign | 0x7c00;
    if (size < 0x1p-14f) // subnormal: adding 1/2 leaves multiples of 2^-24, rounded to even
        return sign | (uint16_t)(bits_of(size + 0.5f) - bits_of(0.5f));
    bits = bits_of(size);
    bits += 0xfff + (bits >> 13 & 1);
    return sign | (uint16_t)((bits - 0x38000000) >> 13);
}

// NaN wins, so that no member misses it.
static float reduce_one(enum cn_reduce how, float into, float from)
{
    if (how == CN_REDUCE_MIN)
        return from < into || from != from ? from : into;
    if (how == CN_REDUCE_MAX)
        return from > into || from != from ? from : into;
    return into + from;
}

static void reduce_float32(enum cn_reduce how, float *into, const float *from, size_t count)
{
    if (how == CN_REDUCE_SUM || how == CN_REDUCE_AVERAGE)
        for (size_t i = 0; i < count; i++)
            into[i] += from[i];
    else
        for (size_t i = 0; i < count; i++)
            into[i] = reduce_one(how, into[i], from[i]);
}

static void reduce_halves(enum cn_number type, enum cn_reduce how, uint16_t *into,
                          const uint16_t *from, size_t count)
{
    if (type == CN_BFLOAT16)
        for (size_t i = 0; i < count; i++)
            into[i] = to_bfloat16(reduce_one(how, from_bfloat16(into[i]), from_bfloat16(from[i])));
    else
        for (size_t i = 0; i < count; i++)
            into[i] = to_float16(reduce_one(how, from_float16(into[i]), from_float16(from[i])));
}

static void reduce_int64(enum cn_reduce how, int64_t *into, const int64_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (how == CN_REDUCE_MIN)
            into[i] = from[i] < into[i] ? from[i] : into[i];
        else if (how == CN_REDUCE_MAX)
            into[i] = from[i] > into[i] ? from[i] : into[i];
        else
            into[i] = (int64_t)((uint64_t)into[i] + (uint64_t)from[i]);
    }
}

void cn_reduce_into(enum cn_number type, enum cn_reduce how, void *into, const void *from,
                    size_t count)
{
    if (type == CN_FLOAT32)
        reduce_float32(how, into, from, count);
    else if (type == CN_INT64)
        reduce_int64(how, into, from, count);
    else
        reduce_halves(type, how, into, from, count);
}

void cn_reduce_finish(enum cn_number type, enum cn_reduce how, void *data, size_t count,
                      uint32_t members)
{
    float *floats = data;
    uint16_t *halves = data;
    int64_t *integers = data;

    if (how != CN_REDUCE_AVERAGE)
        return;
    for (size_t i = 0; i < count; i++)
        switch (type) {
        case CN_FLOAT32:
            floats[i] /= (float)members;
            break;
        case CN_BFLOAT16:
            halves[i] = to_bfloat16(from_bfloat16(halves[i]) / (float)members);
            break;
        case CN_FLOAT16:
            halves[i] = to_float16(from_float16(halves[i]) / (float)members);
            break;
        case CN_INT64:
            integers[i] /= members;
            break;
        }
}

void cn_reduce_narrow(uint16_t *bfloats, const float *floats, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bfloats[i] = to_bfloat16(floats[i]);
}

void cn_reduce_widen(float *floats, const uint16_t *bfloats, size_t count)
{
    for (size_t i = 0; i < count; i++)
        floats[i] = from_bfloat16(bfloats[i]);
}

void cn_reduce_narrow_sum(float *share, size_t count, const uint16_t *parts, uint32_t others,
                          uint16_t *sum)
{
    for (uint32_t k = 0; k < others; k++, parts += count)
        for (size_t i = 0; i < count; i++)
            share[i] += from_bfloat16(parts[i]);
    cn_reduce_narrow(sum, share, count);
}

size_t cn_reduce_share(size_t count, uint32_t members, uint32_t share, size_t *first)
{
    size_t each = count / members, extra = count % members; // s * count / n without overflow
    size_t begin = share * each + share * extra / members;

    *first = begin;
    return (share + 1) * each + (share + 1) * extra / members - begin;
}
