#include "aggregator/merge/robust_pairs.h"

#include <string.h>

#include "aggregator/merge/tensor_class.h"

// Returns the inner product of a tile. The low and the high half of each product are summed apart,
// which needs 64 bits only: a tile has less than 2^31 coordinates.
static cn_robust_number multiply(const int64_t *a, const int64_t *b, size_t count)
{
    int64_t low = 0, high = 0;

    for (size_t i = 0; i < count; i++) {
        int64_t product = a[i] * b[i];

        low += product & 0xffffffff;
        high += product >> 32;
    }
    return (cn_robust_number)high * ((cn_robust_number)1 << 32) + low;
}

// Returns the inner product of two rows of a tile, of the values that have a part in distances.
static cn_robust_number multiply_apart(const struct cn_robust_tile *tile, size_t r, size_t s)
{
    const int64_t *a = tile->values + r * tile->stride, *b = tile->values + s * tile->stride;
    size_t end, last = tile->offset + tile->count;
    cn_robust_number sum = 0;

    if (!tile->apart)
        return multiply(a, b, tile->count);
    for (size_t at = tile->offset; at < last; at = end) {
        bool statistic = cn_tensor_is_statistic(tile->apart, at, &end);
        size_t first = at - tile->offset;

        end = end < last ? end : last;
        if (!statistic)
            sum += multiply(a + first, b + first, end - at);
    }
    return sum;
}

cn_err cn_robust_pairs_multiply(struct cn_robust_rows *rows, size_t n, cn_robust_number *gram)
{
    struct cn_robust_tile tile;

    memset(gram, 0, n * n * sizeof(*gram));
    cn_robust_rows_rewind(rows);
    for (;;) {
        cn_err err = cn_robust_rows_next(rows, &tile);
        if (err)
            return err;
        if (tile.count == 0)
            break;
        for (size_t r = 0; r < n; r++)
            for (size_t s = r; s < n; s++)
                gram[r * n + s] += multiply_apart(&tile, r, s);
    }
    for (size_t r = 0; r < n; r++)
        for (size_t s = 0; s < r; s++)
            gram[r * n + s] = gram[s * n + r];
    return CN_OK;
}

void cn_robust_pairs_distances(cn_robust_number *gram, size_t n)
{
    for (size_t r = 0; r < n; r++)
        for (size_t s = r + 1; s < n; s++) {
            cn_robust_number distance = gram[r * n + r] + gram[s * n + s] - 2 * gram[r * n + s];

            gram[r * n + s] = gram[s * n + r] = distance;
        }
    for (size_t r = 0; r < n; r++) // only now: they were needed above
        gram[r * n + r] = 0;
}
