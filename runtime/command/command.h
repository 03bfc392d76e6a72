// command.h - the subcommands of cairn-node and what they share.
//
// Each subcommand has a file. Its function gets the arguments from the subcommand's name on and
// returns the exit code.
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
    CN_EXIT_STATE = 7,         // this build cannot read the state that another version wrote
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
extern const struct cn_command cn_command_normalize;
extern const struct cn_command cn_command_run;
extern const struct cn_command cn_command_selftest;
extern const struct cn_command cn_command_status;
extern const struct cn_command cn_command_train;

// Runs the command that argv[1] names; commands ends with NULL. Handles --help, --version and the
// options of the log. Returns the exit code.
int cn_command_dispatch(const char *program, const struct cn_command *const *commands,
                        const struct cn_ports *ports, int argc, char **argv);

// Prints the lines of diag to standard error, and the number of further lines that diag had no room
// for.
void cn_command_print_diag(const struct cn_diag *diag);

// Prints the lines of diag as "error: LINE".
void cn_command_print_errors(const struct cn_diag *diag);

// Prints the lines of diag as "PATH: error: LINE", or as "PATH: warning: LINE" if err is CN_OK. For
// an error without lines, prints the text of err.
void cn_command_print_about(const char *path, cn_err err, const struct cn_diag *diag);

// Loads a profile and prints what is wrong with it. Returns NULL for a profile that cannot be used;
// the program then exits with CN_EXIT_PROFILE. Free the profile with cn_profile_free.
struct cn_profile *cn_command_load_profile(const char *path, enum cn_profile_use use);

// As cn_command_load_profile for CN_PROFILE_NODE. key is the board's key, or NULL for that of the
// profile.
struct cn_profile *cn_command_load_node(const char *path, const char *key);

// Takes "[--json] PROFILE" from a command's arguments and loads the profile. Returns CN_EXIT_DONE,
// or the exit code after printing the reason.
int cn_command_take_profile(int argc, char **argv, const char *help, enum cn_profile_use use,
                            bool *json, struct cn_profile **profile);

// Opens a board's state directory and locks it against a second program. Notes there which build
// writes the state from now on. Returns CN_EXIT_DONE, or the exit code after printing the reason:
// CN_EXIT_STATE for a state that this build cannot read. Such a state stays as it is.
int cn_command_open_store(const struct cn_settings *settings, struct cn_store **store);

// Returns whether the directory of --sysroot has sys/ or proc/, as the root of a board has. If not,
// prints an error.
bool cn_command_is_sysroot(const char *directory);

// Open and close the file of --timeline FILE; path is NULL without that option. They print an error
// if the file cannot be written.
cn_err cn_command_open_timeline(const char *path, struct cn_timeline **timeline);
void cn_command_close_timeline(const char *path, struct cn_timeline *timeline);

// Catches SIGINT and SIGTERM and ignores SIGPIPE from now on. Returns a flag that the caught
// signals set.
const atomic_bool *cn_command_catch_signals(void);

// Returns whether a compute port has a device with this number. Opens the device to find out, and
// closes it again.
bool cn_command_has_device(const struct cn_compute_ops *ops, uint32_t number);

// Returns the compute port for the keys device and gpus of the profile, and sets *capability,
// unless that is NULL, to its device's (struct cn_compute). Returns NULL, and prints why, when this
// build or this machine has none.
const struct cn_compute_ops *cn_command_compute(const struct cn_ports *ports,
                                                const struct cn_settings *settings,
                                                uint32_t *capability);
