// command.h - the subcommands of cairn-node and what they share.
//
// A subcommand is a file. It gets what follows its name on the command line and returns the exit
// code.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/base/diag.h"
#include "runtime/port/linked_ports.h"
#include "runtime/profile/profile.h"
#include "runtime/round/session/timeline.h"

enum cn_exit {
    CN_EXIT_DONE = 0,
    CN_EXIT_FAILED = 1,
    CN_EXIT_USAGE = 2,
    CN_EXIT_PROFILE = 3,       // invalid profile
    CN_EXIT_STATE = 7,         // the state is of a version of Cairn that this build cannot read
    CN_EXIT_INTERRUPTED = 130, // by Ctrl-C or SIGTERM, after everything was saved
};

struct cn_command {
    const char *name;
    const char *summary; // one line
    const char *help;    // what --help prints
    const char *exits;   // exit codes of its own for the program's --help: "5 differs"; or NULL
    int (*run)(const struct cn_ports *ports, int argc, char **argv);
};

extern const struct cn_command cn_command_bench;
extern const struct cn_command cn_command_check;
extern const struct cn_command cn_command_init;
extern const struct cn_command cn_command_run;
extern const struct cn_command cn_command_selftest;
extern const struct cn_command cn_command_status;
extern const struct cn_command cn_command_train;

// Runs the command that argv[1] names, with --help, --version and the options of the log
// everywhere.
int cn_command_dispatch(const char *program, const struct cn_command *const *commands,
                        const struct cn_ports *ports, int argc, char **argv);

// Prints the lines of diag to standard error, and how many more there were.
void cn_command_print_diag(const struct cn_diag *diag);

// Prints them as "error: LINE".
void cn_command_print_errors(const struct cn_diag *diag);

// Prints them as "PATH: error: LINE", or "PATH: warning: LINE" without an error.
void cn_command_print_about(const char *path, cn_err err, const struct cn_diag *diag);

// Loads a profile and prints what is wrong with it. NULL: exit with CN_EXIT_PROFILE.
struct cn_profile *cn_command_load_profile(const char *path, enum cn_profile_use use);

// Takes "[--json] PROFILE" from a command's arguments and loads the profile. Returns CN_EXIT_DONE,
// or what to exit with after it said why.
int cn_command_take_profile(int argc, char **argv, const char *help, enum cn_profile_use use,
                            bool *json, struct cn_profile **profile);

// Opens a board's state directory, whose lock keeps a second program out, and notes there which
// build writes it from now on. Returns CN_EXIT_DONE, or what to exit with after it said why:
// CN_EXIT_STATE for a state that this build cannot read, which stays as it is.
int cn_command_open_store(const struct cn_settings *settings, struct cn_store **store);

// Whether --sysroot DIR has what a board's root has: sys/ or proc/. Says so when it has not.
bool cn_command_is_sysroot(const char *directory);

// --timeline FILE; path is NULL without it. A file that cannot be written is said on standard
// error.
cn_err cn_command_open_timeline(const char *path, struct cn_timeline **timeline);
void cn_command_close_timeline(const char *path, struct cn_timeline *timeline);

// Set by SIGINT and SIGTERM once this was called.
const atomic_bool *cn_command_catch_signals(void);

// Whether the device of a compute port with this number is there. What it takes while it is open is
// given back.
bool cn_command_has_device(const struct cn_compute_ops *ops, uint32_t number);

// The compute port the profile wants: device and gpus. NULL, with a line on standard error, when
// this build or this machine lacks it.
const struct cn_compute_ops *cn_command_compute(const struct cn_ports *ports,
                                                const struct cn_settings *settings);
