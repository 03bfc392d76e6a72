// report.h - prints what a person sees of a run: a table with one row per version, and a summary.
//
// On a terminal the last line is live, with the time that is left; elsewhere there are only rows.
// Everything goes to one stream, normally stdout.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "aggregator/run/run.h"

struct cn_report {
    FILE *stream;
    struct cn_ledger *ledger; // borrowed
    const struct cn_job *job;
    bool live;         // whether stream is a terminal
    bool line_shown;   // whether the live line is on the screen
    uint32_t next;     // version of the next row
    uint32_t first;    // version with which the rows began
    uint64_t start_ms; // clock; when the report began
    uint64_t line_ms;  // clock; when the live line was last drawn
};

// Prints the table's head. Rows start with version next.
void cn_report_init(struct cn_report *report, FILE *stream, struct cn_ledger *ledger,
                    const struct cn_job *job, uint32_t next, uint64_t now_ms);

// Prints the rows that are due and draws the live line.
cn_err cn_report_update(struct cn_report *report, const struct cn_run_state *state,
                        uint64_t now_ms);

// Prints the rows that still wait for a measurement. Call it when the program ends before the run.
cn_err cn_report_rest(struct cn_report *report, const struct cn_run_state *state, uint64_t now_ms);

// Removes the live line. Call it before anything else is printed.
void cn_report_clear(struct cn_report *report);

// Prints how good the model is, what it cost in bytes, and where it is stored.
cn_err cn_report_summary(struct cn_report *report, const struct cn_run_state *state,
                         const struct cn_layout *layout, const char *state_directory);
