#include "aggregator/merge/robust_rows.h"

#include <stdlib.h>

#include "aggregator/merge/fixed_point.h"
#include "aggregator/merge/stale.h"

struct row {
    struct cn_update_cursor *cursor;
    uint64_t factor; // in units of 2^-32
};

struct cn_robust_rows {
    struct cn_robust_rows_config config;
    size_t count;    // updates
    size_t offset;   // the next coordinate
    float *floats;   // a tile of one row
    int64_t *values; // a tile of all rows
    struct row rows[];
};

void cn_robust_rows_close(struct cn_robust_rows *rows)
{
    if (!rows)
        return;
    for (size_t i = 0; i < rows->count; i++)
        cn_update_cursor_close(rows->rows[i].cursor);
    free(rows->floats);
    free(rows->values);
    free(rows);
}

cn_err cn_robust_rows_open(const struct cn_robust_rows_config *config,
                           const struct cn_robust_update *updates, size_t count,
                           struct cn_robust_rows **rows)
{
    struct cn_robust_rows *opened = calloc(1, sizeof(*opened) + count * sizeof(opened->rows[0]));

    *rows = NULL;
    if (!opened)
        return CN_ENOMEM;
    opened->config = *config;
    opened->count = count;
    if (opened->config.tile == 0)
        opened->config.tile = CN_ROBUST_TILE;
    opened->floats = calloc(opened->config.tile, sizeof(*opened->floats));
    opened->values = calloc((count + 1) * opened->config.tile, sizeof(*opened->values));
    cn_err err = opened->floats && opened->values ? CN_OK : CN_ENOMEM;
    for (size_t i = 0; i < count && !err; i++) {
        opened->rows[i].factor = cn_fixed_factor(config->norm_max, updates[i].norm);
        if (updates[i].stale)
            opened->rows[i].factor = opened->rows[i].factor * updates[i].stale / CN_STALE_ONE;
        err = cn_update_cursor_open(&updates[i].source, config->layout, &opened->rows[i].cursor);
    }
    if (err) {
        cn_robust_rows_close(opened);
        return err;
    }
    *rows = opened;
    return CN_OK;
}

void cn_robust_rows_rewind(struct cn_robust_rows *rows)
{
    rows->offset = 0;
    for (size_t i = 0; i < rows->count; i++)
        cn_update_cursor_rewind(rows->rows[i].cursor);
}

// Raises changes of variances among the tile's values of one update to what there is to take.
static void limit_variances(const struct cn_robust_rows *rows, size_t count, int64_t *values)
{
    const struct cn_layout *layout = rows->config.layout;

    for (size_t t = 0; rows->config.base && t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];
        size_t first = tensor->offset > rows->offset ? tensor->offset : rows->offset;
        size_t end = tensor->offset + tensor->count;

        if (!tensor->variance)
            continue;
        if (end > rows->offset + count)
            end = rows->offset + count;
        for (size_t i = first; i < end; i++) {
            int64_t least = cn_fixed_least_change(rows->config.base[i]);

            if (values[i - rows->offset] < least)
                values[i - rows->offset] = least;
        }
    }
}

static cn_err read_row(struct cn_robust_rows *rows, const struct row *row, size_t count,
                       int64_t *values)
{
    cn_err err = cn_update_cursor_next(row->cursor, rows->floats, count);

    if (err)
        return err;
    for (size_t i = 0; i < count; i++)
        values[i] = cn_fixed_of(rows->floats[i]);
    for (size_t i = 0; i < count && row->factor != CN_FIXED_ONE; i++)
        values[i] = cn_fixed_scale(values[i], row->factor);
    limit_variances(rows, count, values);
    return CN_OK;
}

cn_err cn_robust_rows_next(struct cn_robust_rows *rows, struct cn_robust_tile *tile)
{
    size_t left = rows->config.layout->total - rows->offset, stride = rows->config.tile;
    size_t count = left < stride ? left : stride;
    int64_t *center = rows->values + rows->count * stride;

    *tile = (struct cn_robust_tile){.offset = rows->offset,
                                    .count = count,
                                    .rows = rows->count + (rows->config.center != NULL),
                                    .stride = stride,
                                    .values = rows->values};
    for (size_t r = 0; r < rows->count && count; r++) {
        cn_err err = read_row(rows, &rows->rows[r], count, rows->values + r * stride);
        if (err)
            return err;
    }
    for (size_t i = 0; i < count && rows->config.center; i++)
        center[i] = cn_fixed_of(rows->config.center[rows->offset + i]);
    rows->offset += count;
    return CN_OK;
}
