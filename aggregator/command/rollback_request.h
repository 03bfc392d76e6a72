// rollback_request.h - asks the run to go back to an earlier version: `rollback` and `remove`.
#pragma once

#include "aggregator/command/setup.h"

// Reads "PROFILE NAME --reason TEXT", opens the gateway's state with the model, and calls act with
// NAME and the reason (NULL: none). wants names the two arguments. Returns the exit code.
int cn_rollback_command(int argc, char **argv, const char *wants,
                        int (*act)(struct cn_setup *setup, const char *name, const char *reason));

// Checks the reason, and that no rollback waits and the run is not over. Prints what is wrong and
// returns the exit code.
int cn_rollback_check(const struct cn_setup *setup, const char *reason);

// Says whether version number is kept as it is in the ledger.
cn_err cn_rollback_is_kept(const struct cn_setup *setup, uint32_t number);

// Says that version 0 may have something of the group, if the run began with what an earlier one
// had trained: the ledger knows only the updates of its own run.
cn_err cn_rollback_tell_origin(const struct cn_setup *setup, const char *group);

// Writes the request and prints what will happen. Returns the exit code.
int cn_rollback_request(const struct cn_setup *setup, uint32_t number, const char *reason);
