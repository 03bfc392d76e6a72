// sweep_record.h - what a sweep has found so far, durable in its folder.
//
// The file CN_SWEEP_FILE has the settings of the sweep, a line each, and a line for each result. It
// is replaced as a whole. So a sweep that was killed goes on behind its last result; the run under
// way goes on by itself (aggregator/trial). Threading: one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/diag.h"
#include "runtime/port/store.h"

#define CN_SWEEP_FILE "sweep.txt"
#define CN_SWEEP_RUNGS_MAX 16
#define CN_SWEEP_DIGEST_SIZE 65 // hexadecimal digits of a version's digest, and 0

// What a trial had reached at the end of a rung.
struct cn_sweep_result {
    uint32_t rung, trial; // counted from 0
    uint32_t rounds;
    double loss;                   // not finite: the trial failed
    double accuracy;               // NaN: the job has none
    uint64_t bytes_up, bytes_down; // since the trial began
    char digest[CN_SWEEP_DIGEST_SIZE];
};

struct cn_sweep_record {
    struct cn_store *store; // the folder, locked; NULL: not open
    int running;            // descriptor that all processes of the sweep hold; -1: not open
    char *settings;
    struct cn_sweep_result *results; // in the order in which they were found
    uint32_t count, room;
};

// Opens the folder of a sweep, or makes it. Waits for the processes of a start that was killed:
// they need some seconds to end. A sweep that ended before its first trial may get other settings,
// so that a mistyped value can be corrected. Returns CN_EEXIST with a line in diag when another
// process has it open, when it holds a sweep with other settings, or something else; CN_EINVAL when
// its file is damaged. Close it in any case.
cn_err cn_sweep_record_open(struct cn_sweep_record *record, const char *folder,
                            const char *settings, struct cn_diag *diag);
void cn_sweep_record_close(struct cn_sweep_record *record);

// Adds a result and stores it.
cn_err cn_sweep_record_add(struct cn_sweep_record *record, const struct cn_sweep_result *result);

// Returns the result of a trial in a rung, or its newest one; NULL: there is none.
const struct cn_sweep_result *cn_sweep_record_find(const struct cn_sweep_record *record,
                                                   uint32_t rung, uint32_t trial);
const struct cn_sweep_result *cn_sweep_record_newest(const struct cn_sweep_record *record,
                                                     uint32_t trial);
