// misspelling.h - what a person probably meant who typed a command or an option that is unknown.
//
// Both print to standard error. Threading: none.
#pragma once

#include "runtime/command/command.h"

// Says that name is no command, which one is near, and how to list all.
void cn_misspelling_command(const char *program, const struct cn_command *const *commands,
                            const char *name);

// Says which option of the command is near an argument that is none, and how to list all. The
// options are those that the command's help names. Prints nothing for the beginning of one.
void cn_misspelling_option(const char *program, const struct cn_command *command,
                           const char *argument);
