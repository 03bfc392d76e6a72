// init_after.h - the next run with the boards of an earlier one: "cairn-aggregator init --after".
#pragma once

// Prepares the run of a profile: enrols the boards of an earlier run's state directory with their
// keys and begins with its version ("last", "best", a number), or with "none" with the model's own
// weights. Reports to standard error and returns the exit code.
int cn_init_after(const char *earlier, const char *version, const char *profile);
