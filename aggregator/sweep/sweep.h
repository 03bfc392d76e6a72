// sweep.h - "cairn-aggregator sweep": trials of a job with other values, and which is best.
//
// Each trial is a `try` in a folder of its own: the same model, the same division of the samples,
// the same seed. They run one after the other, rung by rung (halving.h). Threading: one thread.
#pragma once

#include <stdatomic.h>

#include "aggregator/sweep/halving.h"
#include "aggregator/sweep/sweep_record.h"
#include "aggregator/sweep/sweep_space.h"

struct cn_sweep {
    struct cn_sweep_space space; // checked
    struct cn_halving plan;
    const char *folder;
    const char *aggregator; // path of this program
    const char *base;       // absolute path of the job that all trials extend; NULL: none
    char *const *given;     // words for `try`: model, data, boards
    size_t given_count;
    bool keep_all;                 // folders of trials that lost stay
    bool quiet;                    // prints nothing but errors
    const atomic_bool *stop;       // set: ends the sweep
    struct cn_sweep_record record; // open

    // The rest is set by the functions below.
    bool in[CN_SWEEP_TRIALS_MAX]; // trials that have not lost
    uint32_t winner;              // UINT32_MAX: none yet, or all failed
};

// Writes the job files of all trials that have no result yet, and checks them. Returns
// CN_EXIT_DONE, or the exit code after it printed what is wrong.
int cn_sweep_prepare(struct cn_sweep *sweep);

// Runs the trials that have no result yet, rung by rung, and finds the winner. Writes its job as
// winner.yaml. Returns CN_EXIT_DONE, CN_EXIT_INTERRUPTED, or another exit code after it printed
// why.
int cn_sweep_run(struct cn_sweep *sweep);

// Prints all trials that have a result, the best first: a table, or with json one object.
void cn_sweep_print(const struct cn_sweep *sweep, bool json);
