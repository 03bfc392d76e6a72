// check_contents.h - opens what a profile names: model, data and keys, as "train" and "run" would.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/command/command.h"
#include "runtime/round/session/session.h"

// Opens the model and the data of a profile that trains alone, or the files of each data set of
// another one, and the key of a board that has a name. Nothing is written. Reports to standard
// error and returns the exit code.
int cn_check_contents(const struct cn_ports *ports, const struct cn_settings *settings);

// Prints what people should know about a model that was opened for training alone: its export, the
// names of its tensors, and its ending.
void cn_check_print_trained(const struct cn_session *session);
