// robust_pairs.h - exact distances between updates, and what a rule sees in place of updates.
//
// Everything is a whole number, so no order of additions and no rounding matters. A product of two
// values has at most 2^62. A row has less than 2^32 coordinates, so an inner product of two updates
// has at most 2^94. A mixed row is a sum of at most CN_ROBUST_MOST updates, so sums over pairs of
// mixed rows and all distances stay below 2^114. Threading: none.
#pragma once

#include "aggregator/merge/robust_rows.h"

typedef __int128 cn_robust_number;

// Mixed rows. Row r is the sum over the updates i of counts[r * updates + i] times update i,
// divided by divisor.
struct cn_robust_mixed {
    size_t rows, updates;
    uint32_t divisor;
    uint32_t *counts; // owned
};

// Fills gram, n * n numbers for n rows of a tile, with the inner products of all pairs. Reads all
// tiles.
cn_err cn_robust_pairs_multiply(struct cn_robust_rows *rows, size_t n, cn_robust_number *gram);

// Replaces gram, n * n numbers, by the squared distances of all pairs.
void cn_robust_pairs_distances(cn_robust_number *gram, size_t n);

// Makes mixed rows that are the updates themselves.
cn_err cn_robust_mixed_same(size_t updates, struct cn_robust_mixed *mixed);

// Makes buckets of two updates, and one of a single update if their number is odd. The updates are
// taken in the order of SHA-256 over the seed (8 bytes, little-endian), the round (4 bytes) and the
// group's name.
cn_err cn_robust_mixed_buckets(const struct cn_robust_update *updates, size_t count, uint64_t seed,
                               uint32_t round, struct cn_robust_mixed *mixed);

// Makes a row for each update: the sum of it and of the kept - 1 nearest to it. Among updates at
// one distance, the first by index is nearer.
cn_err cn_robust_mixed_nearest(const cn_robust_number *distances, size_t updates, size_t stride,
                               size_t kept, struct cn_robust_mixed *mixed);

void cn_robust_mixed_deinit(struct cn_robust_mixed *mixed);

// Computes the inner products of the mixed rows, times divisor twice. gram holds those of `updates`
// updates and, with center, of one more row, which follows the mixed rows and is not mixed. to has
// (rows + center)^2 numbers. Returns CN_ENOMEM.
cn_err cn_robust_mixed_multiply(const struct cn_robust_mixed *mixed, const cn_robust_number *gram,
                                bool center, cn_robust_number *to);
