// setup.h - what the subcommands open before they do their work: profile, model, ledger, files.
//
// Every function reports to standard error what a person can mend and returns the exit code for it.
#pragma once

#include "aggregator/run/evaluate.h"
#include "aggregator/store/ledger.h"
#include "aggregator/store/model_file.h"
#include "runtime/command/command.h"
#include "runtime/port/store.h"

// How the ledger and the files are used.
enum cn_setup_access {
    CN_SETUP_ENROLL, // ledger, made when missing; no files
    CN_SETUP_LOOK,   // ledger that exists; files read-only, also beside a running aggregator
    CN_SETUP_RUN,    // ledger, made when missing; files locked for this process
};

struct cn_setup { // zeroed at first; deinit in any case
    struct cn_profile *profile;
    const struct cn_settings *settings;
    enum cn_setup_access access;
    struct cn_job job; // of the run, with the model: the profile's, or the ledger's with LOOK
    struct cn_model_file model;
    bool has_model;
    struct cn_ledger *ledger;
    struct cn_store *store;
};

// Loads the profile and opens ledger and files.
int cn_setup_open(struct cn_setup *setup, const char *profile, enum cn_setup_access access);

// Opens the model alone.
int cn_setup_load_model(struct cn_setup *setup);

// Opens the model. With CN_SETUP_RUN, ties the ledger to it and to the job, or checks that the
// profile may go on with the run. With CN_SETUP_LOOK, writes nothing and takes the job of the
// ledger, so that a profile that was edited for the next run still shows this one.
int cn_setup_open_model(struct cn_setup *setup);

// Applies the job's rules for single tensors to the model: whether each of their patterns fits one.
int cn_setup_set_tensor_rules(struct cn_setup *setup);

// Whether the profile could go on with the run, without writing anything.
int cn_setup_check_job(const struct cn_setup *setup);

// Before a run goes on: whether the model's file has the weights that it began with.
int cn_setup_check_weights(const struct cn_setup *setup);

// Opens the job's central set with the model; *evaluator is NULL for a job without one.
cn_err cn_setup_open_evaluator(const struct cn_setup *setup, const struct cn_ports *ports,
                               struct cn_evaluator **evaluator);

// Finds a version by what a person says: "last", "best" or a number. CN_ENOTFOUND for any other,
// and when there is none.
cn_err cn_setup_choose_version(struct cn_ledger *ledger, const struct cn_job *job, const char *text,
                               uint32_t *number);

void cn_setup_deinit(struct cn_setup *setup);
