#include "runtime/update/row.h"

#include <stdint.h>
#include <string.h>

#include "runtime/port/scratch.h"
#include "runtime/update/update_block.h"

// Rounds a float32 to bfloat16. Value is not NaN: a NaN ends the round before it gets here.
static uint16_t to_half(float value)
{
    uint32_t bits = cn_update_bits(value);

    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_half(uint16_t half)
{
    return cn_update_float((uint32_t)half << 16);
}

cn_err cn_row_allocate(struct cn_row *row, size_t count, bool half)
{
    if (row->data)
        return CN_OK;
    row->half = half;
    row->data =
        count > SIZE_MAX / sizeof(float) ? NULL : cn_scratch_allocate(count * cn_row_width(row));
    return row->data ? CN_OK : CN_ENOMEM;
}

void cn_row_deinit(struct cn_row *row)
{
    cn_scratch_free(row->data);
    *row = (struct cn_row){0};
}

size_t cn_row_width(const struct cn_row *row)
{
    return row->half ? sizeof(uint16_t) : sizeof(float);
}

void cn_row_read(const struct cn_row *row, size_t first, size_t count, float *to)
{
    const uint16_t *halves = (const uint16_t *)row->data + first;

    if (!row->half) {
        memcpy(to, (const float *)row->data + first, count * sizeof(*to));
        return;
    }
    for (size_t i = 0; i < count; i++)
        to[i] = from_half(halves[i]);
}

void cn_row_write(struct cn_row *row, size_t first, size_t count, const float *from)
{
    uint16_t *halves = (uint16_t *)row->data + first;

    if (!row->half) {
        memcpy((float *)row->data + first, from, count * sizeof(*from));
        return;
    }
    for (size_t i = 0; i < count; i++)
        halves[i] = to_half(from[i]);
}

void cn_row_round(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = from_half(to_half(values[i]));
}

void cn_row_fill(void *to, const float *values, size_t count)
{
    struct cn_row_filling *filling = to;

    cn_row_write(&filling->row, filling->done, count, values);
    filling->done += count;
}

void cn_row_add(const struct cn_row *row, size_t first, size_t count, float *to)
{
    const uint16_t *halves = row->data;
    const float *values = row->data;

    for (size_t i = 0; i < count; i++)
        to[i] += row->half ? from_half(halves[first + i]) : values[first + i];
}

void cn_row_subtract(const struct cn_row *row, size_t first, size_t count, float *to)
{
    const uint16_t *halves = row->data;
    const float *values = row->data;

    for (size_t i = 0; i < count; i++)
        to[i] -= row->half ? from_half(halves[first + i]) : values[first + i];
}
