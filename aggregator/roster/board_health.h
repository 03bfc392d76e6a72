// board_health.h - what a board said of itself last (runtime/port/health.h), and its last error.
//
// Both come from the board, so they are not trusted: the texts are cleaned here. Threading: none.
#pragma once

#include "aggregator/roster/fault.h"
#include "runtime/port/health.h"

#define CN_HEALTH_SHORTEST_MS 2000 // a report that comes sooner after another one is not taken
// A report is fresh for this time, in which a board sends several: three of them may get lost.
#define CN_HEALTH_FRESH_MS 300000

struct cn_board_health {
    uint64_t told_ms; // clock; when the newest report came; 0: none since the start
    struct cn_health said;
};

// Takes a report for a roster of this run. A board that serves several jobs tells the samples of
// the one that it has open: those of another run are not taken, and the earlier number stays.
// Returns false for a report that is not taken, because it came too soon.
bool cn_board_health_note(struct cn_board_health *health, const struct cn_health *said,
                          uint64_t run, uint64_t now_ms);

// Returns whether there is a report that is still fresh.
bool cn_board_health_is_fresh(const struct cn_board_health *health, uint64_t now_ms);

// Returns the number of the pause that the report names; 0: none, or one that is not known here.
unsigned cn_board_health_pause(const struct cn_board_health *health);

// Returns the state as a word: "training". A state of a newer board is "unknown".
const char *cn_board_health_word(const struct cn_board_health *health);

// Returns the pause as a word: "heat"; "" for none.
const char *cn_board_health_pause_word(const struct cn_board_health *health);

// Returns the pause as text: "too hot"; "" for none.
const char *cn_board_health_pause_text(const struct cn_board_health *health);
