#include "aggregator/merge/robust_rows.h"

#include <stdlib.h>

#include "aggregator/merge/fixed_point.h"
#include "aggregator/merge/stale.h"
#include "aggregator/merge/tensor_class.h"

struct row {
    struct cn_update_cursor *cursor;
    uint64_t factor[2]; // of trained values and of statistics, in units of 2^-32
};

struct cn_robust_rows {
    struct cn_robust_rows_config config;
    size_t count;    // updates
    size_t offset;   // the next coordinate
    bool mixed;      // whether the layout has statistics
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

static void find_factors(const struct cn_robust_rows_config *config,
                         const struct cn_robust_update *update, uint64_t factor[2])
{
    factor[0] = factor[1] = cn_fixed_factor(config->norm_max, update->norm);
    if (!config->together)
        factor[1] = update->statistics_out
                        ? 0
                        : cn_fixed_factor(config->statistics_max, update->statistics_norm);
    for (int i = 0; i < 2 && update->stale; i++)
        factor[i] = factor[i] * update->stale / CN_STALE_ONE;
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
    opened->mixed = cn_tensor_has_statistics(config->layout);
    if (opened->config.tile == 0)
        opened->config.tile = CN_ROBUST_TILE;
    opened->floats = calloc(opened->config.tile, sizeof(*opened->floats));
    opened->values = calloc((count + 1) * opened->config.tile, sizeof(*opened->values));
    cn_err err = opened->floats && opened->values ? CN_OK : CN_ENOMEM;
    for (size_t i = 0; i < count && !err; i++) {
        find_factors(config, &updates[i], opened->rows[i].factor);
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

// Scales a tile of one row, tensor by tensor.
static void scale(const struct cn_robust_rows *rows, const struct row *row, size_t count,
                  int64_t *values)
{
    size_t end = rows->config.layout->total, last = rows->offset + count;

    for (size_t at = rows->offset; at < last; at = end) {
        bool statistic = rows->mixed && cn_tensor_is_statistic(rows->config.layout, at, &end);
        uint64_t factor = row->factor[statistic];

        for (size_t i = at; i < end && i < last && factor != CN_FIXED_ONE; i++)
            values[i - rows->offset] = cn_fixed_scale(values[i - rows->offset], factor);
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
    scale(rows, row, count, values);
    limit_variances(rows, count, values);
    return CN_OK;
}

cn_err cn_robust_rows_next(struct cn_robust_rows *rows, struct cn_robust_tile *tile)
{
    size_t left = rows->config.layout->total - rows->offset, stride = rows->config.tile;
    size_t count = left < stride ? left : stride;
    int64_t *center = rows->values + rows->count * stride;

    *tile = (struct cn_robust_tile){
        .offset = rows->offset,
        .count = count,
        .rows = rows->count + (rows->config.center != NULL),
        .stride = stride,
        .values = rows->values,
        .apart = rows->mixed && !rows->config.together ? rows->config.layout : NULL};
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
