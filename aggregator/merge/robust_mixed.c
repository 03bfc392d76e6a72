#include "aggregator/merge/robust_mixed.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/port/crypto.h"

static cn_err allocate(struct cn_robust_mixed *mixed, size_t rows, size_t updates, uint32_t divisor)
{
    *mixed = (struct cn_robust_mixed){.rows = rows, .updates = updates, .divisor = divisor};
    mixed->counts = calloc(rows * updates, sizeof(*mixed->counts));
    return mixed->counts ? CN_OK : CN_ENOMEM;
}

void cn_robust_mixed_deinit(struct cn_robust_mixed *mixed)
{
    free(mixed->counts);
    mixed->counts = NULL;
}

cn_err cn_robust_mixed_same(size_t updates, struct cn_robust_mixed *mixed)
{
    cn_err err = allocate(mixed, updates, updates, 1);

    for (size_t i = 0; i < updates && !err; i++)
        mixed->counts[i * updates + i] = 1;
    return err;
}

// A place in the order of buckets.
struct place {
    uint8_t digest[CN_DIGEST_SIZE];
    size_t update;
};

static int compare_places(const void *a, const void *b)
{
    return memcmp(((const struct place *)a)->digest, ((const struct place *)b)->digest,
                  CN_DIGEST_SIZE);
}

cn_err cn_robust_mixed_buckets(const struct cn_robust_update *updates, size_t count, uint64_t seed,
                               uint32_t round, struct cn_robust_mixed *mixed)
{
    struct place *places = calloc(count, sizeof(*places));
    cn_err err = places ? allocate(mixed, (count + 1) / 2, count, 2) : CN_ENOMEM;

    for (size_t i = 0; i < count && !err; i++) {
        uint8_t text[12 + CN_NAME_SIZE];
        size_t length = strlen(updates[i].group);

        cn_put_u64(text, seed);
        cn_put_u32(text + 8, round);
        memcpy(text + 12, updates[i].group, length);
        cn_crypto_digest(text, 12 + length, places[i].digest);
        places[i].update = i;
    }
    if (!err) {
        qsort(places, count, sizeof(*places), compare_places);
        for (size_t i = 0; i < count; i++)
            mixed->counts[i / 2 * count + places[i].update] = count % 2 && i + 1 == count ? 2 : 1;
    }
    free(places);
    return err;
}

cn_err cn_robust_mixed_nearest(const cn_robust_number *distances, size_t updates, size_t stride,
                               size_t kept, struct cn_robust_mixed *mixed)
{
    cn_err err = allocate(mixed, updates, updates, (uint32_t)kept);

    for (size_t r = 0; r < updates && !err; r++) {
        uint32_t *counts = mixed->counts + r * updates;

        counts[r] = 1;
        for (size_t k = 1; k < kept; k++) {
            size_t nearest = updates;

            for (size_t i = 0; i < updates; i++)
                if (!counts[i] && (nearest == updates ||
                                   distances[r * stride + i] < distances[r * stride + nearest]))
                    nearest = i;
            counts[nearest] = 1;
        }
    }
    return err;
}

// Returns how often row r of the mixed rows, or the center behind them, holds row i of the updates,
// or the center behind those.
static cn_robust_number weight_of(const struct cn_robust_mixed *mixed, size_t r, size_t i)
{
    if (r < mixed->rows && i < mixed->updates)
        return mixed->counts[r * mixed->updates + i];
    return r == mixed->rows && i == mixed->updates ? mixed->divisor : 0;
}

cn_err cn_robust_mixed_multiply(const struct cn_robust_mixed *mixed, const cn_robust_number *gram,
                                bool center, cn_robust_number *to)
{
    size_t n = mixed->updates + center, rows = mixed->rows + center;
    cn_robust_number *half = calloc(rows * n, sizeof(*half));

    if (!half)
        return CN_ENOMEM;
    for (size_t r = 0; r < rows; r++)
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < n; i++)
                half[r * n + k] += weight_of(mixed, r, i) * gram[i * n + k];
    for (size_t r = 0; r < rows; r++)
        for (size_t s = 0; s < rows; s++) {
            to[r * rows + s] = 0;
            for (size_t k = 0; k < n; k++)
                to[r * rows + s] += half[r * n + k] * weight_of(mixed, s, k);
        }
    free(half);
    return CN_OK;
}
