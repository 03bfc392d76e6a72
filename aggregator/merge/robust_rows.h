// robust_rows.h - the updates of a round side by side, a tile of coordinates at a time.
//
// Each value is a whole number as in fold.h: in units of 2^-27, scaled down to the limit of norms
// and by the staleness of its update (stale.h), and never taking more from a running variance than
// it has. Memory is some 200 KiB for each update, plus the tile, whatever the size of the model.
// Threading: none.
#pragma once

#include "runtime/update/update_cursor.h"

#define CN_ROBUST_TILE 4096 // coordinates

struct cn_robust_update {
    const char *group; // name of the group that sent the update
    struct cn_update_source source;
    uint64_t weight; // samples that it counts for, at least 1
    // Of cn_fold_norms: of the trained values and of the statistics; with together of all values.
    uint64_t norm, statistics_norm;
    bool statistics_out; // the statistics count as unchanged
    // Factor of stale.h in 1/256. The factor of the limit of norms is multiplied by it and rounded
    // down, and then both scale the values at once; 0: as 256.
    uint32_t stale;
    // Set by cn_robust_mean: how much the update counted, from 0 to 1 (robust.h).
    double factor;
};

struct cn_robust_rows_config {
    const struct cn_layout *layout; // borrowed, as all pointers here
    const float *base;              // the version before; NULL: changes of variances have no limit
    const float *center;            // a row of float32 that follows the updates; NULL: none
    uint64_t norm_max;              // limit of norms in units of 2^-27; 0: none
    uint64_t statistics_max;        // limit of the norms of statistics; 0: none
    // As an older program: norms and distances are those of all values, and have the first limit.
    bool together;
    size_t tile; // most coordinates of a tile; 0: CN_ROBUST_TILE
};

struct cn_robust_rows;

// Opens the rows of count updates, which are borrowed. Errors are those of cn_update_cursor_open.
cn_err cn_robust_rows_open(const struct cn_robust_rows_config *config,
                           const struct cn_robust_update *updates, size_t count,
                           struct cn_robust_rows **rows);
void cn_robust_rows_close(struct cn_robust_rows *rows);

// A tile: value i of row r is values[r * stride + i].
struct cn_robust_tile {
    size_t offset, count; // first coordinate, number of coordinates
    size_t rows, stride;
    int64_t *values; // valid until the next call; the caller may change them
    // To tell the statistics, which have no part in distances; NULL: all values have.
    const struct cn_layout *apart;
};

// Goes back to before the first tile.
void cn_robust_rows_rewind(struct cn_robust_rows *rows);

// Reads the next tile. After the last one count is 0. Returns an error of cn_update_cursor_next.
cn_err cn_robust_rows_next(struct cn_robust_rows *rows, struct cn_robust_tile *tile);
