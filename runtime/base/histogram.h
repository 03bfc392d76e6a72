// histogram.h - counts, for monitors, how many durations were at most 0.01 s, 0.03 s and so on.
//
// Threading: none.
#pragma once

#include <stdint.h>

#define CN_HISTOGRAM_BOUNDS 12

// Upper bounds in seconds: 0.01 to 3600 for work, and 0.0003 to 100 for pauses of a loop.
extern const double cn_histogram_work[CN_HISTOGRAM_BOUNDS];
extern const double cn_histogram_pauses[CN_HISTOGRAM_BOUNDS];

struct cn_histogram {
    const double *bounds;                     // cn_histogram_work or cn_histogram_pauses
    uint64_t counts[CN_HISTOGRAM_BOUNDS + 1]; // durations up to each bound, and above the last one
    uint64_t count;                           // number of durations
    double sum;                               // of all durations, in seconds
};

// Adds a duration.
void cn_histogram_add(struct cn_histogram *histogram, double seconds);
