// run_line.h - the progress line that "cairn-node run" keeps at the bottom of a terminal.
//
// Threading: one thread draws. Other threads may log meanwhile; lines of the log replace the
// progress line (cn_log_set_over_line).
#pragma once

#include "runtime/round/node/status_file.h"

struct cn_run_line {   // all zero at first
    bool live;         // whether standard error can show the line
    uint64_t drawn_ms; // clock: the last drawing
    uint64_t run;      // number of the run whose pace is measured
    uint64_t begun_ms; // clock: when the round `begun` was first seen
    uint32_t begun;    // round from which the pace is measured; 0: none yet
};

// Turns the line on if standard error can show one.
void cn_run_line_open(struct cn_run_line *line);

// Draws the line, at most every 250 ms. context is a struct cn_run_line.
void cn_run_line_draw(void *context, const struct cn_status_file *status, uint64_t now_ms);

// Removes the line and turns it off.
void cn_run_line_close(struct cn_run_line *line);
