// trial.h - "cairn-aggregator try": gateway and boards as processes of one machine.
//
// A trial is prepared once: its folder then has data, keys and profiles as a user would write them.
// To run the trial means to start the programs with these. So a trial that was stopped goes on like
// any run, and a person may change the profiles before. Threading: one thread.
#pragma once

#include <limits.h>

#include "aggregator/trial/trial_folder.h"
#include "aggregator/trial/trial_process.h"
#include "aggregator/trial/trial_split.h"
#include "runtime/profile/profile.h"

struct cn_trial_options {
    const char *model;                     // ONNX file; NULL: that of the folder
    const char *inputs, *labels;           // files of the boards; a * stands for several
    const char *test_inputs, *test_labels; // files of the gateway; NULL: a tenth of inputs, labels
    const char *job;                       // absolute path of a job file; NULL: defaults
    const char *keep;                      // folder of the trial; NULL: a temporary one
    struct cn_trial_split split;
    const struct cn_profile *given; // the job file, loaded; NULL: none. Borrowed
    uint32_t rounds;                // 0: as the job says
    uint32_t port;                  // first of the ports; 0: any that are free
    uint32_t threads;               // of each board; 0: the processors, divided among the boards
    double scale;                   // factor of each input
    bool stay;                      // the gateway goes on after the end of the run
};

// Paths of the programs that a trial starts.
struct cn_trial_programs {
    char node[PATH_MAX], aggregator[PATH_MAX];
};

// Returns "iid", "labels" or "dirichlet".
const char *cn_trial_split_name(enum cn_trial_split_kind kind);

// Fills a new folder: has model, job and data checked, divides the data, writes model and profiles,
// enrols the boards. On an error, the lines in diag say what is wrong. Returns CN_ECANCELED when a
// program found the mistake and printed it.
cn_err cn_trial_prepare(const struct cn_trial_options *options,
                        const struct cn_trial_programs *programs,
                        const struct cn_trial_folder *folder, struct cn_diag *diag);

// Has a program check the folder's job with the user's own files, before their rows are divided.
// Returns CN_ECANCELED when it prints what is wrong.
cn_err cn_trial_check_sources(const struct cn_trial_programs *programs,
                              const struct cn_trial_options *options, const char *folder,
                              struct cn_diag *diag);

// Has the programs check all profiles of a folder. Prints their warnings, each once. Returns false
// after it printed what is wrong.
bool cn_trial_check(const struct cn_trial_programs *programs, const struct cn_trial_folder *folder,
                    uint32_t boards);
