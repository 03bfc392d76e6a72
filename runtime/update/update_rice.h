// update_rice.h - a stream of bits, lowest first, with Rice codes. Private to runtime/update.
//
// A Rice code with parameter b is value >> b zero bits, a one bit, and the b low bits of value
// (Rice 1979). For values of at most `largest` the one bit is left out after largest >> b zero
// bits.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/error.h"

// Writes to memory that the caller made large enough.
struct cn_rice_writer {
    uint8_t *to;
    uint64_t bits;  // bits that are not stored yet
    unsigned count; // number of those bits, fewer than 32 between calls
};

// Appends the count low bits of value; count is at most 32, and the other bits of value are zero.
static inline void cn_rice_put(struct cn_rice_writer *writer, uint32_t value, unsigned count)
{
    uint32_t word;

    writer->bits |= (uint64_t)value << writer->count;
    writer->count += count;
    if (writer->count < 32)
        return;
    word = (uint32_t)writer->bits;
    memcpy(writer->to, &word, sizeof(word));
    writer->to += sizeof(word);
    writer->bits >>= 32;
    writer->count -= 32;
}

static inline void cn_rice_put_zeros(struct cn_rice_writer *writer, uint32_t count)
{
    for (; count > 32; count -= 32)
        cn_rice_put(writer, 0, 32);
    cn_rice_put(writer, 0, count);
}

// Appends a limited Rice code. value is at most largest; b is at most 14.
static inline void cn_rice_put_code(struct cn_rice_writer *writer, uint32_t value, uint32_t largest,
                                    unsigned b)
{
    uint32_t high = value >> b;
    uint32_t low = value & ((1u << b) - 1);

    cn_rice_put_zeros(writer, high);
    if (high < largest >> b)
        cn_rice_put(writer, 1, 1);
    cn_rice_put(writer, low, b);
}

// Writes the remaining bits, with zeros up to a whole byte. Returns the end of the stream.
static inline uint8_t *cn_rice_flush(struct cn_rice_writer *writer)
{
    for (unsigned done = 0; done < writer->count; done += 8)
        *writer->to++ = (uint8_t)(writer->bits >> done);
    writer->bits = writer->count = 0;
    return writer->to;
}

// Reads the bits of the bytes [from, end).
struct cn_rice_reader {
    const uint8_t *from; // next byte to take
    const uint8_t *end;
    uint64_t bits;  // bits that were taken and not read yet
    unsigned count; // number of those bits, at most 64
};

// Takes bytes until count is at least 32 or the end is reached.
static inline void cn_rice_fill(struct cn_rice_reader *reader)
{
    if (reader->count >= 32)
        return;
    if (reader->end - reader->from >= 4) {
        uint32_t word;

        memcpy(&word, reader->from, sizeof(word));
        reader->bits |= (uint64_t)word << reader->count;
        reader->from += 4;
        reader->count += 32;
        return;
    }
    while (reader->from < reader->end) {
        reader->bits |= (uint64_t)*reader->from++ << reader->count;
        reader->count += 8;
    }
}

// Reads count bits, at most 32. Returns CN_EFORMAT beyond the end.
static inline cn_err cn_rice_get(struct cn_rice_reader *reader, unsigned count, uint32_t *value)
{
    cn_rice_fill(reader);
    if (reader->count < count)
        return CN_EFORMAT;
    *value = (uint32_t)(reader->bits & ((1ull << count) - 1));
    reader->bits >>= count;
    reader->count -= count;
    return CN_OK;
}

// Drops count of the bits that were taken; count is at most reader->count.
static inline void cn_rice_drop(struct cn_rice_reader *reader, unsigned count)
{
    reader->bits = count < 64 ? reader->bits >> count : 0;
    reader->count -= count;
}

// Counts zero bits up to a one bit, which is dropped, or up to limit. Returns CN_EFORMAT beyond the
// end.
static inline cn_err cn_rice_get_zeros(struct cn_rice_reader *reader, uint32_t limit,
                                       uint32_t *zeros)
{
    uint32_t left = limit;

    while (left > 0) {
        unsigned run;

        cn_rice_fill(reader);
        if (reader->count == 0)
            return CN_EFORMAT;
        run = reader->bits ? (unsigned)__builtin_ctzll(reader->bits) : reader->count;
        if (run >= left) {
            cn_rice_drop(reader, left);
            left = 0;
            break;
        }
        left -= run;
        if (reader->bits) {
            cn_rice_drop(reader, run + 1);
            break;
        }
        cn_rice_drop(reader, run);
    }
    *zeros = limit - left;
    return CN_OK;
}

// Reads a limited Rice code. Returns CN_EFORMAT beyond the end, CN_ERANGE for a value above
// largest.
static inline cn_err cn_rice_get_code(struct cn_rice_reader *reader, uint32_t largest, unsigned b,
                                      uint32_t *value)
{
    uint32_t high;
    uint32_t low;
    cn_err err = cn_rice_get_zeros(reader, largest >> b, &high);

    if (err)
        return err;
    err = cn_rice_get(reader, b, &low);
    if (err)
        return err;
    *value = high << b | low;
    return *value > largest ? CN_ERANGE : CN_OK;
}
