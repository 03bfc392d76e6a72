// histogram.h - counts durations by size, for monitors: how many took at most so long.
//
// Threading: none.
#pragma once

#include <stdint.h>

#define CN_HISTOGRAM_BOUNDS 12

// Upper bounds in seconds: 0.01 to 3600 for work, and 0.0003 to 100 for pauses of a loop.
extern const double cn_histogram_work[CN_HISTOGRAM_BOUNDS];
extern const double cn_histogram_pauses[CN_HISTOGRAM_BOUNDS];

struct cn_histogram {
    const double *bounds;                     // one of the two above
    uint64_t counts[CN_HISTOGRAM_BOUNDS + 1]; // by bound; the last one is above all bounds
    uint64_t count;                           // all together
    double sum;                               // seconds
};

void cn_histogram_add(struct cn_histogram *histogram, double seconds);
