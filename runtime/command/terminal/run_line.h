// run_line.h - the progress line that "cairn-node run" keeps at the bottom of a terminal.
//
// Threading: one thread draws; other threads may write to the log meanwhile, whose lines replace
// the line (cn_log_set_over_line).
#pragma once

#include "runtime/round/node/status_file.h"

struct cn_run_line { // all zero at first
    bool live;       // whether standard error shows such a line
    uint64_t drawn_ms;
    uint64_t run; // number of the run whose rounds are counted
    uint64_t begun_ms;
    uint32_t begun; // the first of these rounds
};

// Turns the line on if standard error can show one.
void cn_run_line_open(struct cn_run_line *line);

// Draws the line, if the last drawing is long enough ago. context is a struct cn_run_line.
void cn_run_line_draw(void *context, const struct cn_status_file *status, uint64_t now_ms);

// Removes the line and turns it off.
void cn_run_line_close(struct cn_run_line *line);
