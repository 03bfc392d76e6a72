// sweep_trial.h - one trial of a sweep: a `cairn-aggregator try` of its own, as a process.
#pragma once

#include <limits.h>
#include <stdatomic.h>

#include "aggregator/sweep/sweep_record.h"

struct cn_sweep_trial {
    const char *aggregator; // path of this program
    const char *folder;     // of the sweep
    const char *name;       // the folder of the trial in it, and the beginning of its files' names
    char *const *given;     // words for `try` in front of the sweep's own: model, data, boards
    size_t given_count;
    const atomic_bool *stop; // set: ends the trial
};

// Runs the trial, or goes on with it, until it has trained as its job says. Fills rounds, loss,
// accuracy, bytes and digest of the result. Returns the exit code of `try`; the loss is infinite
// when it is not CN_EXIT_DONE. A version that nobody could measure counts as
// CN_TRIAL_EXIT_PROCESS. What `try` said is in NAME.log.
int cn_sweep_trial_run(const struct cn_sweep_trial *trial, struct cn_sweep_result *result);

// Prints what the trial said last to standard error.
void cn_sweep_trial_tell(const struct cn_sweep_trial *trial);

// Removes the folder of the trial.
void cn_sweep_trial_remove(const struct cn_sweep_trial *trial);
