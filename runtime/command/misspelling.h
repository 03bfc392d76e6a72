// misspelling.h - what a person probably meant who typed a command or an option that is unknown.
//
// Both print to standard error. Threading: none.
#pragma once

#include "runtime/command/command.h"

// Says that name is no command, which one is near, and how to list all.
void cn_misspelling_command(const char *program, const struct cn_command *const *commands,
                            const char *name);

// Adds to getopt's error about an argument that is no option of the command: which option is near,
// and how to list all. The options are those that the command's help names. Prints nothing for the
// beginning of one.
void cn_misspelling_option(const char *program, const struct cn_command *command,
                           const char *argument);
