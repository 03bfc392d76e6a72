// session_alone.h - a session without a group and an aggregator, whose state lies in the trainer
// only.
//
// The weights of a round become the next version unchanged, and nothing is sent. So there is no
// copy of any row besides the trainer's: states move between its memory and the disk. Private to
// runtime/round.
#pragma once

#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/session/session.h"

// Returns whether the board trains without a group and an aggregator.
bool cn_session_is_alone(const struct cn_session *session);

// Saves the held state with the trainer's rows. *saved is the result of the disk, which does not
// fail the call. An error returned is the device's; the trainer's rows, of which no copy exists,
// may then be torn.
cn_err cn_session_save_rows(struct cn_session *session, cn_err *saved);

// Reads the rows of a stored state, which is the held state, into the trainer. Rows that the file
// lacks keep their values.
cn_err cn_session_take_rows(struct cn_session *session, const struct cn_checkpoint_file *file);

// Lets the trainer continue with its rows from the step of the held state.
cn_err cn_session_go_on(struct cn_session *session);
