// trial_run.h - runs the programs of a prepared trial until its end.
#pragma once

#include <stdatomic.h>

#include "aggregator/trial/trial.h"
#include "aggregator/trial/trial_faults.h"

struct cn_trial_run {
    const struct cn_trial_programs *programs;
    const char *folder;
    const char *state; // the gateway's state directory
    const struct cn_trial_split *split;
    uint32_t boards;
    uint32_t quorum;         // groups whose updates make a version
    uint32_t members;        // fewest boards with which a group can train
    uint32_t rounds;         // of the whole run; the remaining time is estimated from it
    bool stay;               // the gateway goes on after the end
    bool quiet;              // prints no rows
    const atomic_bool *stop; // set: ends the run

    // The rest is set by the functions below.
    struct cn_trial_process gateway, processes[CN_TRIAL_BOARDS_MAX];
    int output; // descriptor of the gateway's standard output; -1: none
    char line[1024];
    size_t line_size;
    uint32_t begun;    // version of the first row that was printed
    uint64_t begun_ms; // clock; when that row was printed
    bool drawn;        // a live line is on the screen
    bool over;         // the gateway said that the run is over
    bool changed;      // boards failed or are back since the last look at whether enough can train
    struct cn_trial_faults faults;
};

// Starts gateway and boards, and prints the gateway's rows and the boards' errors until the run is
// over. Returns CN_EXIT_DONE, CN_EXIT_INTERRUPTED, or CN_TRIAL_EXIT_PROCESS, after it printed why,
// when the gateway failed or fewer groups than the quorum can train.
#define CN_TRIAL_EXIT_PROCESS 4
int cn_trial_run_until_end(struct cn_trial_run *run);

// With stay, waits until the run is stopped or the gateway ends.
void cn_trial_run_stay(struct cn_trial_run *run);

// Ends all processes that still run.
void cn_trial_run_end(struct cn_trial_run *run);
