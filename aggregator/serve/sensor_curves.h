// sensor_curves.h - the sensors of each board over time, since the aggregator started.
//
// They are in memory only: after a restart they begin again. Threading: that of the run.
#pragma once

#include "aggregator/roster/roster.h"
#include "aggregator/roster/sensor_curve.h"

#define CN_CURVES_MOST 1000 // boards with a curve, those that reported first: 5 MB

struct cn_sensor_curves { // zero it before use
    // Owned; a board each, in the order of first reports.
    struct cn_sensor_curves_board {
        char name[CN_NAME_SIZE];
        uint64_t told_ms;              // clock; of the newest report that was taken
        struct cn_sensor_curve *curve; // owned
    } * boards;
    size_t count;
    uint64_t looked_ms; // clock
};

// Takes new reports of the boards, at most once a second.
void cn_sensor_curves_look(struct cn_sensor_curves *curves, const struct cn_roster *roster,
                           uint64_t now_ms);
void cn_sensor_curves_deinit(struct cn_sensor_curves *curves);

// Returns the curve of a board; NULL: it has none.
const struct cn_sensor_curve *cn_sensor_curves_find(const struct cn_sensor_curves *curves,
                                                    const char *board);
