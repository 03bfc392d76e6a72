// check_contents.h - opens the model, data and keys that a profile names, as "train" and "run" do.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/command/command.h"
#include "runtime/round/session/session.h"

// For a profile that trains alone, opens its model and data. For any other one, opens the files of
// each data set. Also opens the key of a board that has a name. Writes nothing. Reports to standard
// error and returns the exit code.
int cn_check_contents(const struct cn_ports *ports, const struct cn_settings *settings);

// Prints warnings about a model that was opened for training alone: about its export, the names of
// its tensors, and its last operator.
void cn_check_print_trained(const struct cn_session *session);
