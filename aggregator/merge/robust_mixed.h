// robust_mixed.h - mixed rows: sums of updates that a rule sees in place of the updates.
//
// Everything is a whole number. robust_pairs.h has the bounds. Threading: none.
#pragma once

#include "aggregator/merge/robust_pairs.h"

// Mixed rows. Row r is the sum over the updates i of counts[r * updates + i] times update i,
// divided by divisor.
struct cn_robust_mixed {
    size_t rows, updates;
    uint32_t divisor;
    uint32_t *counts; // owned
};

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

// Computes the inner products of the mixed rows, times divisor squared. gram holds those of
// `updates` updates and, with center, of one more row, which follows the mixed rows and is not
// mixed. to has (rows + center)^2 numbers. Returns CN_ENOMEM.
cn_err cn_robust_mixed_multiply(const struct cn_robust_mixed *mixed, const cn_robust_number *gram,
                                bool center, cn_robust_number *to);
