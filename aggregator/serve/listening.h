// listening.h - the addresses at which a running aggregator listens, for `check` beside it.
//
// They are the lines of the file STATE/listening. What the file says holds only while the program
// that wrote it runs (cn_live_state).
#pragma once

#include "runtime/profile/profile.h"

// Replaces the file. Call it once all addresses are open.
cn_err cn_listening_write(const struct cn_settings *settings);

// Returns whether the file in the state directory has the address. Programs before 0.1.0 left no
// file; without it every address counts as held.
bool cn_listening_has(const char *directory, const char *address);
