#include "aggregator/merge/robust.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/merge/fixed_point.h"
#include "aggregator/merge/robust_rules.h"

#define SHARES ((uint64_t)1 << 30) // A in robust.h, times D
#define NEAREST 128.0              // smallest distance of rfa, in units of 2^-27, for D = 1

struct robust_merge {
    const struct cn_robust_config *config;
    struct cn_robust_update *updates;
    size_t count;
    bool center; // whether a center follows the updates
    struct cn_robust_rows *rows;
    struct cn_robust_mixed mixed;
    size_t tolerate;        // f
    cn_robust_number *gram; // inner products of the updates and the center; NULL: not needed
    double factors[CN_ROBUST_MOST]; // factors by which the mixed rows count
    int64_t *shares;                // shares of the updates and the center in the result
    uint64_t divisor;               // divides the sum by shares, or the sum of the middle values
};

const char *cn_robust_rule_name(enum cn_robust_rule rule)
{
    static const char *const names[] = {"none", "median", "trimmed", "multi_krum", "rfa", "cclip"};

    return names[rule];
}

size_t cn_robust_rows_kept(const struct cn_robust *robust)
{
    return robust->rule == CN_ROBUST_CCLIP;
}

static bool is_sorted(const struct robust_merge *merge)
{
    enum cn_robust_rule rule = merge->config->robust->rule;

    return rule == CN_ROBUST_MEDIAN || rule == CN_ROBUST_TRIMMED;
}

// --- rows ---

static void find_tolerance(struct robust_merge *merge)
{
    const struct cn_robust *robust = merge->config->robust;
    size_t rows = robust->mix == CN_ROBUST_MIX_BUCKET ? (merge->count + 1) / 2 : merge->count;
    size_t extra = robust->rule == CN_ROBUST_MULTI_KRUM ? 3 : 1;
    size_t most = rows > extra ? (rows - extra) / 2 : 0;

    merge->tolerate = robust->tolerate < most ? robust->tolerate : most;
}

static cn_err find_products(struct robust_merge *merge)
{
    size_t n = merge->count + merge->center;

    merge->gram = calloc(n * n, sizeof(*merge->gram));
    return merge->gram ? cn_robust_pairs_multiply(merge->rows, n, merge->gram) : CN_ENOMEM;
}

static cn_err mix_nearest(struct robust_merge *merge)
{
    size_t n = merge->count + merge->center;
    cn_robust_number *distances = malloc(n * n * sizeof(*distances));

    if (!distances)
        return CN_ENOMEM;
    memcpy(distances, merge->gram, n * n * sizeof(*distances));
    cn_robust_pairs_distances(distances, n);
    cn_err err = cn_robust_mixed_nearest(distances, merge->count, n, merge->count - merge->tolerate,
                                         &merge->mixed);
    free(distances);
    return err;
}

static cn_err mix(struct robust_merge *merge)
{
    const struct cn_robust_config *config = merge->config;

    switch (config->robust->mix) {
    case CN_ROBUST_MIX_BUCKET:
        return cn_robust_mixed_buckets(merge->updates, merge->count, config->seed, config->round,
                                       &merge->mixed);
    case CN_ROBUST_MIX_NEAREST:
        return mix_nearest(merge);
    default:
        return cn_robust_mixed_same(merge->count, &merge->mixed);
    }
}

// --- rules that give shares ---

static bool is_weighted(const struct robust_merge *merge)
{
    return merge->config->robust->mix == CN_ROBUST_MIX_NONE;
}

// Sets whole to the shares of the mixed rows as whole numbers.
static void round_shares(const struct robust_merge *merge, const double *shares, uint64_t *whole)
{
    uint64_t all = SHARES / merge->mixed.divisor; // rounded down

    for (size_t r = 0; r < merge->mixed.rows; r++)
        whole[r] = (uint64_t)(shares[r] * (double)all);
}

static cn_err choose(struct robust_merge *merge, const cn_robust_number *distances, uint64_t *whole)
{
    size_t n = merge->mixed.rows;
    bool chosen[CN_ROBUST_MOST];
    cn_err err = cn_robust_choose(distances, n, merge->tolerate, chosen);

    for (size_t r = 0; r < n && !err; r++) {
        merge->factors[r] = chosen[r];
        whole[r] = !chosen[r] ? 0 : is_weighted(merge) ? merge->updates[r].weight : 1;
    }
    return err;
}

static void weigh(struct robust_merge *merge, const cn_robust_number *distances, uint64_t *whole)
{
    size_t n = merge->mixed.rows;
    uint64_t weights[CN_ROBUST_MOST];
    double shares[CN_ROBUST_MOST], total = 0;

    for (size_t r = 0; r < n; r++) {
        weights[r] = is_weighted(merge) ? merge->updates[r].weight : 1;
        total += (double)weights[r];
    }
    cn_robust_weigh(distances, n, weights, NEAREST * merge->mixed.divisor, shares);
    round_shares(merge, shares, whole);
    for (size_t r = 0; r < n; r++)
        merge->factors[r] = shares[r] * total / (double)weights[r];
}

// whole also gets the share of the center, after those of the rows.
static cn_err clip(struct robust_merge *merge, const cn_robust_number *distances, uint64_t *whole)
{
    size_t n = merge->mixed.rows;
    uint64_t sum = 0, all = SHARES / merge->mixed.divisor;
    double shares[CN_ROBUST_MOST + 1];
    cn_err err = cn_robust_clip(distances, n + 1, shares, merge->factors);

    if (err)
        return err;
    round_shares(merge, shares, whole);
    for (size_t r = 0; r < n; r++)
        sum += whole[r];
    whole[n] = all > sum ? all - sum : 0;
    return CN_OK;
}

static cn_err apply_rule(struct robust_merge *merge, const cn_robust_number *distances,
                         uint64_t *whole)
{
    switch (merge->config->robust->rule) {
    case CN_ROBUST_MULTI_KRUM:
        return choose(merge, distances, whole);
    case CN_ROBUST_RFA:
        weigh(merge, distances, whole);
        return CN_OK;
    default:
        return clip(merge, distances, whole);
    }
}

// Turns the shares of the mixed rows into shares of the updates.
static void spread_shares(struct robust_merge *merge, const uint64_t *whole)
{
    const struct cn_robust_mixed *mixed = &merge->mixed;

    for (size_t r = 0; r < mixed->rows; r++) {
        merge->divisor += whole[r] * mixed->divisor;
        for (size_t i = 0; i < merge->count; i++)
            merge->shares[i] += (int64_t)(whole[r] * mixed->counts[r * merge->count + i]);
    }
    if (merge->center) {
        merge->shares[merge->count] = (int64_t)(whole[mixed->rows] * mixed->divisor);
        merge->divisor += whole[mixed->rows] * mixed->divisor;
    }
}

static cn_err find_shares(struct robust_merge *merge)
{
    size_t n = merge->mixed.rows + merge->center;
    cn_robust_number *distances = calloc(n * n, sizeof(*distances));
    uint64_t whole[CN_ROBUST_MOST + 1] = {0};

    merge->shares = calloc(merge->count + 1, sizeof(*merge->shares));
    cn_err err = distances && merge->shares ? CN_OK : CN_ENOMEM;
    if (!err)
        err = cn_robust_mixed_multiply(&merge->mixed, merge->gram, merge->center, distances);
    if (!err) {
        cn_robust_pairs_distances(distances, n);
        err = apply_rule(merge, distances, whole);
    }
    if (!err)
        spread_shares(merge, whole);
    free(distances);
    return err;
}

// --- the last pass ---

static cn_err add_by_shares(struct robust_merge *merge, float *mean)
{
    struct cn_robust_tile tile;

    for (;;) {
        cn_err err = cn_robust_rows_next(merge->rows, &tile);
        if (err || tile.count == 0)
            return err;
        for (size_t r = 0; r < tile.rows; r++) {
            const int64_t *values = tile.values + r * tile.stride;

            // The sums take the place of the first row.
            for (size_t i = 0; i < tile.count; i++)
                tile.values[i] = (r ? tile.values[i] : 0) + merge->shares[r] * values[i];
        }
        for (size_t i = 0; i < tile.count; i++)
            mean[tile.offset + i] = cn_fixed_divide(tile.values[i], merge->divisor);
    }
}

// Sets rows, with the stride of the tile, to the mixed rows of a tile.
static void mix_tile(const struct cn_robust_mixed *mixed, const struct cn_robust_tile *tile,
                     int64_t *rows)
{
    memset(rows, 0, mixed->rows * tile->stride * sizeof(*rows));
    for (size_t r = 0; r < mixed->rows; r++)
        for (size_t u = 0; u < mixed->updates; u++) {
            int64_t times = mixed->counts[r * mixed->updates + u];

            for (size_t i = 0; i < tile->count && times; i++)
                rows[r * tile->stride + i] += times * tile->values[u * tile->stride + i];
        }
}

// Sorts each coordinate of the rows.
static void sort_rows(int64_t *values, size_t rows, size_t stride, size_t count)
{
    for (size_t last = 1; last < rows; last++)
        for (size_t r = last; r > 0; r--) {
            int64_t *above = values + (r - 1) * stride, *below = values + r * stride;

            for (size_t i = 0; i < count; i++) {
                int64_t a = above[i], b = below[i];

                above[i] = a < b ? a : b;
                below[i] = a < b ? b : a;
            }
        }
}

// Counts the coordinates at which each row is among the middle values, that is between low and
// high.
static void count_middle(const int64_t *rows, size_t count, size_t stride, const int64_t *low,
                         const int64_t *high, size_t coordinates, uint64_t *inside)
{
    for (size_t r = 0; r < count; r++)
        for (size_t i = 0; i < coordinates; i++)
            inside[r] += rows[r * stride + i] >= low[i] && rows[r * stride + i] <= high[i];
}

// Sets sums, of a tile's coordinates, to the sums of the sorted values [first, rows - first).
static void add_middle(const int64_t *sorted, size_t rows, size_t stride, size_t first,
                       size_t coordinates, int64_t *sums)
{
    memset(sums, 0, coordinates * sizeof(*sums));
    for (size_t r = first; r < rows - first; r++)
        for (size_t i = 0; i < coordinates; i++)
            sums[i] += sorted[r * stride + i];
}

static cn_err take_middle(struct robust_merge *merge, int64_t *mixed, int64_t *sorted, float *mean)
{
    size_t n = merge->mixed.rows, f = merge->tolerate;
    size_t first = merge->config->robust->rule == CN_ROBUST_MEDIAN ? (n - 1) / 2 : f;
    uint64_t inside[CN_ROBUST_MOST] = {0};
    struct cn_robust_tile tile;

    merge->divisor = (n - 2 * first) * merge->mixed.divisor;
    for (;;) {
        cn_err err = cn_robust_rows_next(merge->rows, &tile);
        if (err)
            return err;
        if (tile.count == 0)
            break;
        mix_tile(&merge->mixed, &tile, mixed);
        memcpy(sorted, mixed, n * tile.stride * sizeof(*sorted));
        sort_rows(sorted, n, tile.stride, tile.count);
        count_middle(mixed, n, tile.stride, sorted + f * tile.stride,
                     sorted + (n - 1 - f) * tile.stride, tile.count, inside);
        add_middle(sorted, n, tile.stride, first, tile.count, mixed);
        for (size_t i = 0; i < tile.count; i++)
            mean[tile.offset + i] = cn_fixed_divide(mixed[i], merge->divisor);
    }
    for (size_t r = 0; r < n; r++)
        merge->factors[r] = (double)inside[r] * (double)n /
                            ((double)merge->config->layout->total * (double)(n - 2 * f));
    return CN_OK;
}

static cn_err sort_all(struct robust_merge *merge, float *mean)
{
    size_t tile = merge->config->tile ? merge->config->tile : CN_ROBUST_TILE;
    size_t size = merge->mixed.rows * tile;
    int64_t *block = calloc(2 * size + 1, sizeof(*block));

    if (!block)
        return CN_ENOMEM;
    cn_err err = take_middle(merge, block, block + size, mean);
    free(block);
    return err;
}

// Sets the factor of each update to that of its row or of its bucket. In mixes of the nearest, sets
// it to the sum of the factors of the rows that the update is in, divided by the number of updates
// in a row.
static void set_factors(struct robust_merge *merge)
{
    const struct cn_robust_mixed *mixed = &merge->mixed;

    for (size_t i = 0; i < merge->count; i++) {
        double sum = 0, parts = 0;

        for (size_t r = 0; r < mixed->rows; r++) {
            sum += mixed->counts[r * merge->count + i] * merge->factors[r];
            parts += mixed->counts[r * merge->count + i];
        }
        if (merge->config->robust->mix == CN_ROBUST_MIX_NEAREST)
            parts = mixed->divisor;
        merge->updates[i].factor = sum < parts ? sum / parts : 1;
    }
}

static cn_err find_mean(struct robust_merge *merge, float *mean)
{
    bool distances = !is_sorted(merge) || merge->config->robust->mix == CN_ROBUST_MIX_NEAREST;
    cn_err err = distances ? find_products(merge) : CN_OK;

    if (!err)
        err = mix(merge);
    if (!err && !is_sorted(merge))
        err = find_shares(merge);
    if (err)
        return err;
    cn_robust_rows_rewind(merge->rows);
    err = is_sorted(merge) ? sort_all(merge, mean) : add_by_shares(merge, mean);
    if (!err)
        set_factors(merge);
    return err;
}

cn_err cn_robust_mean(const struct cn_robust_config *config, struct cn_robust_update *updates,
                      size_t count, float *center, float *mean)
{
    struct robust_merge merge = {
        .config = config, .updates = updates, .count = count, .center = center != NULL};
    const struct cn_robust_rows_config rows = {.layout = config->layout,
                                               .base = config->base,
                                               .center = center,
                                               .norm_max = config->norm_max,
                                               .statistics_max = config->statistics_max,
                                               .together = config->together,
                                               .tile = config->tile};

    assert(count > 0 && (center != NULL) == (cn_robust_rows_kept(config->robust) == 1));
    if (count > CN_ROBUST_MOST)
        return CN_ERANGE;
    find_tolerance(&merge);
    cn_err err = cn_robust_rows_open(&rows, updates, count, &merge.rows);
    if (!err)
        err = find_mean(&merge, mean);
    if (!err && center)
        memcpy(center, mean, config->layout->total * sizeof(*center));
    cn_robust_rows_close(merge.rows);
    cn_robust_mixed_deinit(&merge.mixed);
    free(merge.gram);
    free(merge.shares);
    return err;
}
