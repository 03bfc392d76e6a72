// sensor_curves.h - the sensors of each board over time, since the aggregator started.
//
// They are in memory only: after a restart they begin again, and so does that of a board that is
// enrolled again with another key. Threading: that of the run.
#pragma once

#include "aggregator/roster/roster.h"
#include "aggregator/roster/sensor_curve.h"

#define CN_CURVES_MOST 1000 // boards with a curve, those that reported first: 5 MB

struct cn_sensor_curves {           // zero it before use
    struct cn_sensor_curves_board { // owned; a board each
        char name[CN_NAME_SIZE];
        size_t place;                  // of the board in the roster
        uint64_t key_hash;             // hash of its key
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
