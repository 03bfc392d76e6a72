// check_contents.h - opens the model, data and keys that a profile names, as "train" and "run" do.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/command/command.h"
#include "runtime/round/session/session.h"

// Opens the model of the job, if the profile has one, and the key files of a board that has a name
// and a key. For a profile that trains alone, opens model and data together as "train" does; for
// any other, opens the files of each data set. Writes nothing. Prints mistakes to standard error.
// Returns the exit code.
int cn_check_contents(const struct cn_ports *ports, const struct cn_settings *settings);

// Prints warnings about a model that was opened for training alone: about its export, the names of
// its tensors, and its last operator.
void cn_check_print_trained(const struct cn_session *session);
