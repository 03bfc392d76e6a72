// histogram.h - counts durations by size for monitors: up to 0.01 s, up to 0.03 s and so on.
//
// Threading: none.
#pragma once

#include <stdint.h>

#define CN_HISTOGRAM_BOUNDS 12

// Upper bounds in seconds: 0.01 to 3600 for work, and 0.0003 to 100 for pauses of a loop.
extern const double cn_histogram_work[CN_HISTOGRAM_BOUNDS];
extern const double cn_histogram_pauses[CN_HISTOGRAM_BOUNDS];

// The caller sets bounds; the rest is zero at first.
struct cn_histogram {
    const double *bounds; // cn_histogram_work or cn_histogram_pauses
    // counts[i] has the durations above bound i - 1 and up to bound i, the last those above all.
    uint64_t counts[CN_HISTOGRAM_BOUNDS + 1];
    uint64_t count; // number of durations
    double sum;     // sum of all durations, in seconds
};

void cn_histogram_add(struct cn_histogram *histogram, double seconds);
