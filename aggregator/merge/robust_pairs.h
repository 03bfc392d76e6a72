// robust_pairs.h - exact distances between updates.
//
// Everything is a whole number, so no order of additions and no rounding matters. A product of two
// values has at most 2^62. A row has less than 2^32 coordinates, so an inner product of two updates
// has at most 2^94. A mixed row (robust_mixed.h) is a sum of at most CN_ROBUST_MOST updates, so
// sums over pairs of mixed rows and all distances stay below 2^114. Threading: none.
#pragma once

#include "aggregator/merge/robust_rows.h"

typedef __int128 cn_robust_number;

// Fills gram, n * n numbers for n rows of a tile, with the inner products of all pairs. Reads all
// tiles.
cn_err cn_robust_pairs_multiply(struct cn_robust_rows *rows, size_t n, cn_robust_number *gram);

// Replaces gram, n * n numbers, by the squared distances of all pairs.
void cn_robust_pairs_distances(cn_robust_number *gram, size_t n);
