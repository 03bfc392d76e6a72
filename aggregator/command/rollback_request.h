// rollback_request.h - asks the run to go back to an earlier version: `rollback` and `remove`.
#pragma once

#include "aggregator/daemon/setup.h"

struct cn_rollback_request_options {
    const char *name;    // the argument after the profile
    const char *reason;  // NULL: none was given
    bool yes;            // --yes: do not ask
    const char *gateway; // state of the gateway: that of setup, unless it is a submitted job's
};

// A command that may ask for a rollback.
struct cn_rollback_request_command {
    const char *name;  // in the audit
    const char *wants; // names of its two arguments, for people
    bool asks;         // --yes is an option
    int (*act)(struct cn_setup *setup, const struct cn_rollback_request_options *options);
};

// Reads the command line, opens the gateway's state with the model and calls act between two lines
// of the audit. Returns the exit code.
int cn_rollback_request_run(const struct cn_rollback_request_command *command, int argc,
                            char **argv);

// Checks the reason, and that no rollback waits and the run is not over. Prints what is wrong and
// returns the exit code.
int cn_rollback_request_check(const struct cn_setup *setup, const char *reason);

// Returns CN_OK when the file of version number is kept and has the digest of the ledger,
// CN_ENOTFOUND when it is not kept, CN_EDIGEST when it is damaged.
cn_err cn_rollback_request_is_kept(const struct cn_setup *setup, uint32_t number);

// If the run began with a version of an earlier run, prints that version 0 may have something of
// the group: the ledger knows only the updates of its own run.
cn_err cn_rollback_request_tell_origin(const struct cn_setup *setup, const char *group);

// Writes the request and prints what will happen. Returns the exit code.
int cn_rollback_request_write(const struct cn_setup *setup, uint32_t number, const char *reason);
