// sensor_curve.h - what a board's sensors said over time, in a bounded number of points.
//
// The newest two hours have a point for each report, at most one in CN_CURVE_FINE_S. What is older
// is thinned: its points are evenly spread, and when their array is full, each two become one. So a
// run of days has a curve from its start on, in the same memory as one of hours. A point of several
// readings has the highest temperature, because heat is what people look for, and the means of
// power and speed. Threading: none.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/port/health.h"

#define CN_CURVE_FINE 120    // newest points
#define CN_CURVE_FINE_S 60   // least time from one of these to the next
#define CN_CURVE_OLDER 120   // points of what is older
#define CN_CURVE_OLDER_S 120 // the time of one of these, before the first thinning

struct cn_sensor_point {
    uint32_t at_s;     // of its first reading, from the begin of the curve
    uint32_t readings; // number of reports in it
    float temperature_c, power_w, samples_per_s; // NaN: not known
};

struct cn_sensor_curve { // zero it before use
    uint64_t begun_ms;   // clock; of the first report; 0: none yet
    uint32_t older_s;    // time of a point of older
    uint32_t older_count, fine_first, fine_count;
    struct cn_sensor_point older[CN_CURVE_OLDER];
    struct cn_sensor_point fine[CN_CURVE_FINE]; // a ring
};

// Adds a report. told_ms does not go back.
void cn_sensor_curve_add(struct cn_sensor_curve *curve, const struct cn_health *said,
                         uint64_t told_ms);

size_t cn_sensor_curve_count(const struct cn_sensor_curve *curve);
// Returns the point with this number, from the oldest on.
const struct cn_sensor_point *cn_sensor_curve_at(const struct cn_sensor_curve *curve,
                                                 size_t number);
