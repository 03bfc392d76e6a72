// setup.h - opens what the subcommands need before they work: profile, model, ledger, files.
//
// Functions that return int print to standard error what a person can repair, and return the exit
// code for it.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "aggregator/run/evaluate.h"
#include "aggregator/store/model_file.h"
#include "runtime/command/command.h"
#include "runtime/port/store.h"

// How a subcommand uses the ledger and the files.
enum cn_setup_access {
    CN_SETUP_ENROLL, // ledger, made when missing; no files; refuses the profile of a submitted job
    CN_SETUP_LOOK,   // existing ledger; files read-only, also beside a running aggregator
    CN_SETUP_RUN,    // ledger, made when missing; files locked for this process
    CN_SETUP_ALONE,  // existing ledger; files locked for this process; refuses as CN_SETUP_ENROLL
};

// Whose rights a command of root has while it uses the state directory (store/state_owner.h).
enum cn_setup_rights {
    CN_SETUP_OF_OWNER,         // those of the directory's owner, and root's in between
    CN_SETUP_OF_OWNER_FOREVER, // those of the owner, for the rest of the program
    CN_SETUP_OF_CALLER,        // root's: the program is the aggregator itself
};

// Zero it before use, and deinit it in any case.
struct cn_setup {
    struct cn_profile *profile;
    const struct cn_settings *settings; // state: the path under which this process reaches it
    char state_name[CN_PATH_SIZE];      // path of the state directory that people know
    enum cn_setup_access access;
    enum cn_setup_rights rights;
    // The profile's job. Once the model is open with CN_SETUP_LOOK, the ledger's newest one; in a
    // running aggregator, that of the round.
    struct cn_job job;
    struct cn_model_file model;
    bool has_model;
    struct cn_ledger *ledger;
    struct cn_store *store;
};

// Loads the profile and touches nothing in the state directory.
int cn_setup_load(struct cn_setup *setup, const char *profile);
// Prints that a command is one for the gateway if the state is that of a submitted job. Returns
// whether it is.
bool cn_setup_refuse_job(const char *state);
// Takes the rights with which the state directory is used, after cn_setup_load.
int cn_setup_take_rights(struct cn_setup *setup);
// Takes them, and opens ledger and files.
int cn_setup_open_state(struct cn_setup *setup, enum cn_setup_access access);
// Does both.
int cn_setup_open(struct cn_setup *setup, const char *profile, enum cn_setup_access access);

// Opens the model and nothing else.
int cn_setup_load_model(struct cn_setup *setup);

// Opens the model. With CN_SETUP_RUN, also ties the ledger to the model and the job, or checks that
// the profile may continue the run. With CN_SETUP_LOOK, writes nothing and takes the job from the
// ledger. So a profile that was edited for the next run still shows this one.
int cn_setup_open_model(struct cn_setup *setup);

// Applies the job's rules for single tensors to the model. Fails when a pattern fits no tensor.
int cn_setup_set_tensor_rules(struct cn_setup *setup);

// Checks whether the model can be cut as the job's pipeline says.
int cn_setup_check_cut(const struct cn_setup *setup);

// Says which groups of a ledger have too few boards for the job's pipeline. Fails when no group has
// enough.
int cn_setup_check_groups(const struct cn_setup *setup, struct cn_ledger *ledger);

// Checks whether the profile could continue the run, without writing anything.
int cn_setup_check_job(const struct cn_setup *setup);

// Checks, before a run continues, that the model's file has the weights with which the run began.
int cn_setup_check_weights(const struct cn_setup *setup);

// Opens the job's central set with the model. Sets *evaluator to NULL for a job without one.
cn_err cn_setup_open_evaluator(const struct cn_setup *setup, const struct cn_ports *ports,
                               struct cn_evaluator **evaluator);

// Finds the job of the round under way, or after it of the next one. Where the ledger has none, the
// profile's counts.
cn_err cn_setup_find_job(const struct cn_setup *setup, struct cn_job *job);

// Finds the version that text names: "last", "best" or a number. Returns CN_ENOTFOUND for any other
// text, and when there is no such version, and CN_EAGAIN while no version is known to be the best
// one.
cn_err cn_setup_choose_version(struct cn_ledger *ledger, const struct cn_job *job, const char *text,
                               uint32_t *number);

// Says for people why no version was chosen. none: what CN_ENOTFOUND means to the command.
const char *cn_setup_explain_choice(cn_err err, const char *none);

void cn_setup_deinit(struct cn_setup *setup);
