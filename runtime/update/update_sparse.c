// update_sparse.c - blocks with a few coordinates: gaps, signs and log magnitudes.
//
// A magnitude is one of 2^v levels between the smallest and the largest of the block, equally
// spaced in the bits of the float, which are close to its logarithm. With v = 0 every magnitude is
// the mean of all.
#include "runtime/update/update_block.h"
#include "runtime/update/update_rice.h"

#define HEAD_SIZE 3 // 15 bits count, 4 bits b of the gaps, 4 bits b of the levels, 1 bit zero
#define GAP_B_MAX 14
#define LEVEL_COUNT 256

// The coordinates that are sent of a block, in the order of the row.
struct sparse {
    uint32_t count;
    uint16_t index[CN_UPDATE_BLOCK_COUNT_MAX];
    uint16_t gap[CN_UPDATE_BLOCK_COUNT_MAX];
    uint8_t level[CN_UPDATE_BLOCK_COUNT_MAX];
};

// The levels of a block: level l stands for bits low + l * step + step / 2.
struct scale {
    uint32_t value_bits;
    uint32_t low_code, high_code;
    uint32_t low, step; // in units of the last place
};

static void set_scale(struct scale *scale)
{
    scale->low = scale->low_code << CN_UPDATE_CODE_SHIFT;
    scale->step = (scale->high_code + 1 - scale->low_code)
                  << (CN_UPDATE_CODE_SHIFT - scale->value_bits);
}

static float level_value(const struct scale *scale, uint32_t level)
{
    const uint32_t limit = CN_UPDATE_CODE_MAX << CN_UPDATE_CODE_SHIFT;
    uint32_t bits = scale->low;

    if (scale->value_bits)
        bits += level * scale->step + scale->step / 2;
    return cn_update_float(bits < limit ? bits : limit);
}

// Returns the sum of ceil((gap >> b) / 2): the unary bits that b + 1 saves, at a cost of count
// bits. The sum falls with b, so the code length is convex in b.
static uint32_t saved_bits(const struct sparse *sparse, unsigned b)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < sparse->count; i++)
        sum += ((uint32_t)(sparse->gap[i] >> b) + 1) >> 1;
    return sum;
}

// Returns the smallest b for which b + 1 gives no shorter code.
static unsigned choose_gap_b(const struct sparse *sparse, size_t block_count)
{
    size_t mean = block_count / sparse->count;
    unsigned b = 0;

    while (b < GAP_B_MAX && mean >> (b + 1))
        b++; // a first guess; the search below starts from it
    while (b > 0 && saved_bits(sparse, b - 1) <= sparse->count)
        b--;
    while (saved_bits(sparse, b) > sparse->count)
        b++;
    return b;
}

static bool is_gap_b(const struct sparse *sparse, unsigned b)
{
    return saved_bits(sparse, b) <= sparse->count &&
           (b == 0 || saved_bits(sparse, b - 1) > sparse->count);
}

// Returns the smallest b of 0 to value_bits that codes the levels in the fewest bits.
static unsigned choose_level_b(const struct sparse *sparse, uint32_t value_bits)
{
    uint32_t histogram[LEVEL_COUNT] = {0};
    uint32_t largest = (1u << value_bits) - 1;
    uint32_t best_bits = UINT32_MAX;
    unsigned best = 0;

    for (uint32_t i = 0; i < sparse->count; i++)
        histogram[sparse->level[i]]++;
    for (unsigned b = 0; b <= value_bits; b++) {
        uint32_t bits = b * sparse->count;

        for (uint32_t level = 0; level <= largest; level++) {
            uint32_t high = level >> b;

            bits += histogram[level] * (high < largest >> b ? high + 1 : high);
        }
        if (bits < best_bits) {
            best_bits = bits;
            best = b;
        }
    }
    return best;
}

// Collects the indices of the block's picked coordinates.
static void collect(const float *values, size_t count, struct cn_update_pick *pick,
                    struct sparse *sparse)
{
    uint32_t least = pick->ties ? pick->code : pick->code + 1;
    uint32_t found = 0;
    uint32_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        sparse->index[found] = (uint16_t)i;
        found += cn_update_code(values[i]) >= least;
    }
    if (pick->ties == 0) {
        sparse->count = found;
        return;
    }
    for (uint32_t i = 0; i < found; i++) {
        uint16_t index = sparse->index[i];

        if (cn_update_code(values[index]) == pick->code) {
            if (pick->ties == 0)
                continue;
            pick->ties--;
        }
        sparse->index[kept++] = index;
    }
    sparse->count = kept;
}

// Returns the nearest code to the mean of the magnitudes, ties to even. Magnitudes are added in the
// order of the row.
static uint32_t mean_code(const float *values, const struct sparse *sparse)
{
    double sum = 0;

    for (uint32_t i = 0; i < sparse->count; i++)
        sum += (double)cn_update_float(cn_update_bits(values[sparse->index[i]]) & 0x7fffffffu);
    return cn_update_nearest_code((float)(sum / sparse->count));
}

static void fit_scale(const float *values, const struct sparse *sparse, struct scale *scale)
{
    uint32_t low = CN_UPDATE_CODE_MAX;
    uint32_t high = 0;

    if (scale->value_bits == 0) {
        scale->low_code = scale->high_code = mean_code(values, sparse);
        set_scale(scale);
        return;
    }
    for (uint32_t i = 0; i < sparse->count; i++) {
        uint32_t code = cn_update_code(values[sparse->index[i]]);

        low = code < low ? code : low;
        high = code > high ? code : high;
    }
    scale->low_code = low;
    scale->high_code = high;
    set_scale(scale);
}

static void set_gaps_and_levels(const float *values, const struct scale *scale,
                                struct sparse *sparse)
{
    uint32_t next = 0;

    for (uint32_t i = 0; i < sparse->count; i++) {
        uint32_t index = sparse->index[i];
        uint32_t magnitude = cn_update_bits(values[index]) & 0x7fffffffu;

        sparse->gap[i] = (uint16_t)(index - next);
        sparse->level[i] =
            (uint8_t)(scale->value_bits ? (magnitude - scale->low) / scale->step : 0);
        next = index + 1;
    }
}

// Writes gap, sign and level of each coordinate in turn. Returns the end.
static uint8_t *put_coordinates(const float *values, size_t count, const struct sparse *sparse,
                                const struct scale *scale, unsigned gap_b, unsigned level_b,
                                float *decoded, uint8_t *to)
{
    struct cn_rice_writer writer = {.to = to};
    uint32_t largest_level = (1u << scale->value_bits) - 1;
    uint32_t unsent = (uint32_t)count - sparse->count; // remaining coordinates that are not sent

    for (uint32_t i = 0; i < sparse->count; i++) {
        uint32_t index = sparse->index[i];
        uint32_t negative = cn_update_bits(values[index]) >> 31;
        float value = level_value(scale, sparse->level[i]);

        decoded[index] = negative ? -value : value;
        cn_rice_put_code(&writer, sparse->gap[i], unsent, gap_b);
        cn_rice_put(&writer, negative, 1);
        cn_rice_put_code(&writer, sparse->level[i], largest_level, level_b);
        unsent -= sparse->gap[i];
    }
    return cn_rice_flush(&writer);
}

static void put_head(uint8_t head[HEAD_SIZE], uint32_t count, unsigned gap_b, unsigned level_b)
{
    uint32_t word = count | (uint32_t)gap_b << 15 | (uint32_t)level_b << 19;

    head[0] = (uint8_t)word;
    head[1] = (uint8_t)(word >> 8);
    head[2] = (uint8_t)(word >> 16);
}

size_t cn_update_sparse_encode(const float *values, size_t count, uint32_t value_bits,
                               struct cn_update_pick *pick, float *decoded, uint8_t *block)
{
    struct scale scale = {.value_bits = value_bits};
    struct sparse sparse;
    uint8_t *to = block + HEAD_SIZE;
    unsigned gap_b;
    unsigned level_b;

    collect(values, count, pick, &sparse);
    memset(decoded, 0, 4 * count);
    if (sparse.count == 0) {
        put_head(block, 0, 0, 0);
        return HEAD_SIZE;
    }
    fit_scale(values, &sparse, &scale);
    set_gaps_and_levels(values, &scale, &sparse);
    gap_b = choose_gap_b(&sparse, count);
    level_b = choose_level_b(&sparse, value_bits);
    put_head(block, sparse.count, gap_b, level_b);
    cn_put_u16(to, (uint16_t)scale.low_code);
    to += 2;
    if (value_bits) {
        cn_put_u16(to, (uint16_t)scale.high_code);
        to += 2;
    }
    to = put_coordinates(values, count, &sparse, &scale, gap_b, level_b, decoded, to);
    return (size_t)(to - block);
}

// Reads the codes after the head. Returns an error for codes that no encoder writes.
static cn_err get_scale(const uint8_t *bytes, size_t size, struct scale *scale, size_t *used)
{
    *used = scale->value_bits ? 4 : 2;
    if (size < *used)
        return CN_EFORMAT;
    scale->low_code = cn_get_u16(bytes);
    scale->high_code = scale->value_bits ? cn_get_u16(bytes + 2) : scale->low_code;
    if (scale->low_code < CN_UPDATE_CODE_MIN || scale->high_code < scale->low_code ||
        scale->high_code > CN_UPDATE_CODE_MAX)
        return CN_ERANGE;
    set_scale(scale);
    return CN_OK;
}

// Reads the coordinates into values, and their indices, gaps and levels into sparse.
static cn_err get_coordinates(struct cn_rice_reader *reader, size_t count,
                              const struct scale *scale, unsigned gap_b, unsigned level_b,
                              struct sparse *sparse, float *values)
{
    uint32_t largest_level = (1u << scale->value_bits) - 1;
    uint32_t unsent = (uint32_t)count - sparse->count;
    uint32_t index = 0;

    for (uint32_t i = 0; i < sparse->count; i++) {
        uint32_t gap;
        uint32_t negative;
        uint32_t level;
        float value;
        cn_err err = cn_rice_get_code(reader, unsent, gap_b, &gap);

        if (err)
            return err;
        err = cn_rice_get(reader, 1, &negative);
        if (err)
            return err;
        err = cn_rice_get_code(reader, largest_level, level_b, &level);
        if (err)
            return err;
        value = level_value(scale, level);
        index += gap;
        values[i] = negative ? -value : value;
        sparse->index[i] = (uint16_t)index++;
        sparse->gap[i] = (uint16_t)gap;
        sparse->level[i] = (uint8_t)level;
        unsent -= gap;
    }
    return CN_OK;
}

// Finds the end of what was read. The unread bits of its last byte have to be zero.
static cn_err finish_reader(const struct cn_rice_reader *reader, const uint8_t **end)
{
    unsigned whole = reader->count / 8;

    *end = reader->from - whole;
    return reader->bits & ((1u << reader->count % 8) - 1) ? CN_EFORMAT : CN_OK;
}

cn_err cn_update_sparse_decode(const uint8_t *bytes, size_t size, size_t count, uint32_t value_bits,
                               struct cn_update_few *few, size_t *used)
{
    struct scale scale = {.value_bits = value_bits};
    struct sparse sparse;
    struct cn_rice_reader reader = {.end = bytes + size};
    uint32_t head;
    unsigned gap_b;
    unsigned level_b;
    size_t scale_size;
    cn_err err;

    if (size < HEAD_SIZE)
        return CN_EFORMAT;
    head = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16;
    sparse.count = head & 0x7fff;
    gap_b = head >> 15 & 15;
    level_b = head >> 19 & 15;
    if (sparse.count > count || gap_b > GAP_B_MAX || level_b > value_bits)
        return CN_ERANGE;
    few->count = sparse.count;
    if (sparse.count == 0) {
        *used = HEAD_SIZE;
        return head == 0 ? CN_OK : CN_EFORMAT;
    }
    err = get_scale(bytes + HEAD_SIZE, size - HEAD_SIZE, &scale, &scale_size);
    if (err)
        return err;
    reader.from = bytes + HEAD_SIZE + scale_size;
    err = get_coordinates(&reader, count, &scale, gap_b, level_b, &sparse, few->values);
    if (err)
        return err;
    memcpy(few->index, sparse.index, sparse.count * sizeof(few->index[0]));
    err = finish_reader(&reader, &bytes);
    if (err)
        return err;
    *used = size - (size_t)(reader.end - bytes);
    if (head >> 23 || !is_gap_b(&sparse, gap_b) || level_b != choose_level_b(&sparse, value_bits))
        return CN_EFORMAT;
    return CN_OK;
}
