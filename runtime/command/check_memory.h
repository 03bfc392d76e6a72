// check_memory.h - compares a profile's memory with that of this machine.
#pragma once

#include <stdbool.h>

#include "runtime/profile/profile.h"

// Tells whether the machine below sysroot ("" on a board) has the memory that memory.train_max lets
// training take. Prints an error that begins with what when it has not. True when the machine's
// memory is not known (no proc/meminfo), or the profile has no train_max.
bool cn_check_memory(const char *what, const struct cn_settings *settings, const char *sysroot);
