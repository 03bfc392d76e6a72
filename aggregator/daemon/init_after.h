// init_after.h - prepares a run with the boards of an earlier one: "cairn-aggregator init --after".
#pragma once

#include <stdbool.h>

// Prepares the run of a profile. Enrols the boards of an earlier run's state directory with their
// keys. version says which of its versions the run begins with: "last", "best" or a number; "none":
// the model's own weights. is_job: the run is a further job of a gateway, whose list of revocations
// holds for it; nothing is printed then when all is well. Prints errors to standard error and
// returns the exit code.
int cn_init_after(const char *earlier, const char *version, const char *profile, bool is_job);
